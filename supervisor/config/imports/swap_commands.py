"""Make of a model that llama-swap serves by a program other than llama-server a model with `source: command`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

_PORT = "${PORT}"
_ADDRESS = re.compile(r"https?://(?P<host>\[[0-9a-fA-F:]+\]|[^/:]+)(?::(?P<port>\$\{PORT\}|\d{1,5}))?(?P<path>/.*)?")
_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PLAIN = frozenset({"", "/"})


def as_command(
    given: Mapping[str, object], words: Sequence[str], stop: Sequence[str], note: Callable[[str], None]
) -> dict[str, object] | None:
    """Return the settings of such a model, but for those of every model; None where it cannot be one of ours.

    Args:
        given: as llama-swap has it.
        words: of its command, with macros put in but for `${PORT}`; stop: of the command that ends it.
        note: takes what has no counterpart, or needs a look.
    """
    command = _with_port(list(words), str(given.get("proxy", "")), note)
    if command is None:
        return None
    settings: dict[str, object] = {"source": "command", "command": command}
    check = given.get("checkEndpoint")
    if isinstance(check, str) and check not in {"", "/health"}:
        settings["ready"] = check
    if isinstance(named := given.get("useModelName"), str) and named:
        settings["model_name"] = named
    if stop:
        settings["stop"] = list(stop)
    elif [PurePath(word).name for word in command[:2]] in (["docker", "run"], ["podman", "run"]):
        note("its container outlives the command: say with `stop` how it is ended, or it will not be accepted")
    note("say with `memory` what it holds (`CPU: 2g`, `CUDA0: 8g`), and with `apis` which paths it answers")
    return settings


def _with_port(words: list[str], proxy: str, note: Callable[[str], None]) -> list[str] | None:
    """Return the command with `${PORT}` in it; None where it does not say where it listens."""
    runs = PurePath(words[0].partition("=")[0]).name if words else ""
    address = _ADDRESS.fullmatch(proxy) if proxy else None
    if proxy and (address is None or address["host"] not in _HERE or (address["path"] or "") not in _PLAIN):
        note(f"its command runs {runs!r} and is reached at an address that is not of this machine: it is left out")
        return None
    fixed = address["port"] if address is not None else None
    if fixed is not None and fixed != _PORT:
        words = [re.sub(rf"(?<!\d){fixed}(?!\d)", _PORT, word) for word in words]
    if not words or not any(_PORT in word for word in words):
        note(f"its command runs {runs!r} and does not say its port with {_PORT}: it is left out")
        return None
    return words
