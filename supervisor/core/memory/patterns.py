"""Regular expressions for tensor names, which come from clients and configurations.

llama-server matches them with C++'s `std::regex`, which takes exponential time for some. Here RE2 does, in time that
grows with the name alone; it knows no back references and no look-around. How many there are is bounded by the
settings, how long one is and how large it gets here, and so is what all of them cost for all tensors of a model: a plan
for a load is made on the loop that relays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import re2

MOST_CHARACTERS = 512
_MOST_NAMES = 1 << 14
_MOST_WORK = 1 << 26  # characters of patterns, for each tensor of a model: some half a second
_TENSOR = 1 << 13  # characters as which a tensor counts besides, for what every estimate does with it
_PROGRAM_BYTES = 1 << 18  # of one compiled pattern with what it remembers


class BadPattern(ValueError):
    """The pattern cannot be used; the message says why."""


class _Pattern(Protocol):
    """The part of a compiled pattern that is used."""

    def search(self, text: str) -> object | None: ...


class Matcher:
    """Several patterns, of which the first match counts; names that were asked for are remembered."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Compile the patterns. Raise BadPattern for one that cannot be used."""
        self._compiled = [_compiled(pattern) for pattern in patterns]
        self._known: dict[str, int | None] = {}

    def first(self, name: str) -> int | None:
        """Return the number of the first pattern that is found in the name."""
        try:
            return self._known[name]
        except KeyError:
            pass
        if len(self._known) >= _MOST_NAMES:
            self._known.clear()
        found = next((number for number, one in enumerate(self._compiled) if one.search(name)), None)
        self._known[name] = found
        return found


@lru_cache(maxsize=8)
def matcher(patterns: tuple[str, ...]) -> Matcher:
    """Return the matcher for these patterns; many estimates of a plan share one. Raises BadPattern."""
    return Matcher(patterns)


def is_too_much(patterns: Sequence[str], tensors: int) -> bool:
    """Return whether a model has too many tensors for these patterns, where it has any."""
    return bool(patterns) and tensors * (_TENSOR + sum(map(len, patterns))) > _MOST_WORK


def check_pattern(pattern: str) -> None:
    """Raise BadPattern for a pattern that is none, is too large, or needs more than bounded time."""
    _compiled(pattern)


def check_override(text: str) -> None:
    """Raise ValueError for a text that is no `PATTERN=PLACE` with a usable pattern."""
    pattern, equals, place = text.partition("=")
    if not (pattern and equals and place) or "," in text:
        raise ValueError("must be PATTERN=BUFFER TYPE without a comma, which would end it")
    check_pattern(pattern)


def _compiled(pattern: str) -> _Pattern:
    if len(pattern) > MOST_CHARACTERS:
        raise BadPattern(f"the pattern has more than {MOST_CHARACTERS} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES
    options.never_capture = True
    try:
        found: _Pattern = re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise BadPattern("a pattern is text without lone surrogates") from None
    except re2.error as error:
        reason = error.args[0]
        why = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(
            f"'{pattern}' cannot be used as a pattern ({why}); look-around and back references are not supported"
        ) from None
    return found
