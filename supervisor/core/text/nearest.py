"""Which name was meant.

How alike two names are is the share of letters that they have in common and in order: of their longest common
subsequence, found with one addition for each letter (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
"""

from __future__ import annotations

from collections.abc import Iterable

_ALIKE = 0.7  # share of letters: one slip in four letters
_TELLING = 2  # letters of which a name must consist to count as the beginning of a longer one
_LONGEST = 256  # letters of a name that may be a slip
_MOST_COMPARED = 1 << 14  # letters of all names together: who asks for a name that nobody knows makes others wait


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` if one of the names is similar to this one, else nothing.

    A name that begins with what was typed comes first, the shortest of several; then the one most alike. Takes linear
    time, and of very many names some are not compared.
    """
    if len(name) > _LONGEST:
        return ""
    known = {one.lower(): one for one in sorted(names)}
    typed = name.lower()
    longer = [one for one in known if one.startswith(typed)] if len(typed) >= _TELLING else []
    near = min(longer, key=len) if longer else _most_alike(typed, known)
    return f"; did you mean {known[near]}?" if near else ""


def _most_alike(typed: str, names: Iterable[str]) -> str:
    """Return the name that is most alike; empty where none is alike."""
    places = _places(typed)
    left, best, found = _MOST_COMPARED, 0.0, ""
    for name in names:
        together = len(typed) + len(name)
        most = 2 * min(len(typed), len(name)) / together if together else 0.0
        if most < _ALIKE or most <= best or left < len(name):
            continue
        left -= len(name)
        alike = 2 * _in_common(places, len(typed), name) / together
        if alike >= _ALIKE and alike > best:
            best, found = alike, name
    return found


def _places(text: str) -> dict[str, int]:
    """Return the places of each letter, as bits."""
    places: dict[str, int] = {}
    for at, letter in enumerate(text):
        places[letter] = places.get(letter, 0) | 1 << at
    return places


def _in_common(places: dict[str, int], length: int, other: str) -> int:
    """Letters of the longest common subsequence of the text with these places and another one."""
    every = (1 << length) - 1
    row = every
    for letter in other:
        there = row & places.get(letter, 0)
        row = ((row + there) | (row - there)) & every
    return length - row.bit_count()
