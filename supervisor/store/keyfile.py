"""The file of API keys: their hashes, what they may do and what they have used; for its owner alone.

A file of its own, for a damaged database is set aside and begun anew. Keys that vanish would open the door, so a file
that cannot be read is an error, and stays as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from supervisor.core.requests.keys import MOST_KEYS, Key, KeyRules, Usage
from supervisor.core.requests.scopes import Scope
from supervisor.errors import KeysUnusable
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import own_folder, read_own

_VERSION = 1
_MOST = 16 << 20  # bytes
_LONGEST = 200  # characters of what is wrong, which may quote the file


class KeyFile:
    """The file at `path`. Calls block for as long as the disk takes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Key]:
        """Return the keys; none where there is no file. Raise KeysUnusable for one that cannot be understood whole."""
        try:
            found = json.loads(read_own(self._path, _MOST))
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']!r} is not known")
            return [_key(one) for one in found["keys"][: MOST_KEYS + 1]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            why = f"{type(error).__name__}: {str(error)[:_LONGEST]}"
            raise KeysUnusable(
                f"{self._path} cannot be read ({why}). Put a copy back in its place, or remove it to begin without the "
                "keys that were added."
            ) from error

    def write(self, keys: Iterable[Mapping[str, object]]) -> None:
        """Write the keys, as `record_of` gives them, whole or not at all. Raise KeysUnusable."""
        try:
            own_folder(self._path.parent)
            atomic_write(self._path, json.dumps({"version": _VERSION, "keys": list(keys)}).encode(), durable=True)
        except OSError as error:
            raise KeysUnusable(f"{self._path} cannot be written: {error}.") from error


def record_of(key: Key) -> Mapping[str, object]:
    """Return what is kept of a key."""
    rules, usage = key.rules, key.usage
    return {
        "name": rules.name,
        "sha256": key.digest.hex(),
        "scopes": sorted(rules.scopes),
        "models": list(rules.models),
        "expires_at": rules.expires_at,
        "requests_per_minute": rules.requests_per_minute,
        "tokens_per_minute": rules.tokens_per_minute,
        "token_budget": rules.token_budget,
        "created_at": key.created_at,
        "rotated_at": key.rotated_at,
        "revoked_at": key.revoked_at,
        "usage": [usage.requests, usage.prompt_tokens, usage.completion_tokens],
    }


def _key(found: Mapping[str, Any]) -> Key:
    rules = KeyRules(
        name=_text(found["name"]),
        scopes=frozenset(map(Scope, found["scopes"])),
        models=tuple(map(_text, found["models"])),
        expires_at=_moment(found["expires_at"]),
        requests_per_minute=_size(found["requests_per_minute"]),
        tokens_per_minute=_size(found["tokens_per_minute"]),
        token_budget=_size(found["token_budget"]),
    )
    digest = bytes.fromhex(found["sha256"])
    if len(digest) != 32:
        raise ValueError("a hash is not a SHA-256")
    usage = Usage(*map(int, found["usage"]))
    rotated, revoked = _moment(found["rotated_at"]), _moment(found["revoked_at"])
    return Key(rules, digest, _finite(found["created_at"]), usage, rotated_at=rotated, revoked_at=revoked)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _moment(value: object) -> float | None:
    return None if value is None else _finite(value)


def _finite(value: object) -> float:
    """Return a moment; one that no clock reaches would never end a key."""
    found = float(str(value))
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is not a moment")
    return found


def _size(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise ValueError(f"{value!r} is not a limit")
    return value
