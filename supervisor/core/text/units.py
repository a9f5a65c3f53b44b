"""Numbers as people write them: `10m` of time, `8k` of tokens, `4g` of memory."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MOST = 32  # characters; a number that is longer is no number of ours
_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]{0,3})")
_SECONDS: Mapping[str, float] = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_TOKENS: Mapping[str, float] = {"": 1, "k": 1 << 10, "m": 1 << 20}
_MEBIBYTES: Mapping[str, float] = {
    "": 1,
    **dict.fromkeys(("m", "mb", "mib"), 1),
    **dict.fromkeys(("g", "gb", "gib"), 1 << 10),
    **dict.fromkeys(("t", "tb", "tib"), 1 << 20),
}

DURATION = r"^([0-9]{1,15}(\.[0-9]{1,9})? ?(ms|s|m|h|d|w) ?)+$"
TOKENS = r"^[0-9]{1,15}(\.[0-9]{1,9})? ?[kKmM]$"
MEBIBYTES = r"^[0-9]{1,15}(\.[0-9]{1,9})? ?([mMgGtT]([iI]?[bB])?)$"
"""Patterns of the texts, for schemas; they are at most MOST_CHARACTERS long."""
MOST_CHARACTERS = _MOST


def seconds(text: str) -> float:
    """Return `90`, `500ms`, `10m`, `1h30m` or `2d` in seconds. Raise ValueError for anything else."""
    if plain := _plain(text):
        return float(plain)
    total, rest = 0.0, text[:_MOST].strip()
    while found := _NUMBER.match(rest):
        if found[2] not in _SECONDS:
            break
        total, rest = total + float(found[1]) * _SECONDS[found[2]], rest[found.end() :].lstrip()
    if rest or "-" in text or len(text) > _MOST or not text.strip():
        raise ValueError("a duration such as 90, 45s, 10m or 1h30m")
    return total


def tokens(text: str) -> int:
    """Return `8192`, `8k` (8192), `1.5k` or `1m` in tokens; k is 1024, as for contexts.

    Raise ValueError for anything else.
    """
    return _scaled(text, _TOKENS, "a number such as 8192 or 8k")


def mebibytes(text: str) -> int:
    """Return `8192`, `512m`, `8g`, `8GiB` or `1t` in MiB; g is GiB. Raise ValueError for anything else."""
    return _scaled(text, _MEBIBYTES, "a number of MiB, or a size such as 512m or 8g")


def _scaled(text: str, scale: Mapping[str, float], wanted: str) -> int:
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _MOST else None
    factor = scale.get(found[2].lower()) if found is not None else None
    if found is None or factor is None:
        raise ValueError(wanted)
    value = float(found[1]) * factor
    if not value.is_integer():
        raise ValueError(wanted)
    return int(value)


def _plain(text: str) -> str | None:
    """Return the number of a text without a unit; None if it is none."""
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _MOST else None
    return found[1] if found is not None and not found[2] else None
