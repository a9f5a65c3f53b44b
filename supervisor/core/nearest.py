"""Which name was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.5  # share of letters that two names have in common and in order, as difflib counts


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean …?` where one of the names is like this one, else nothing."""
    near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=_ALIKE)
    return f"; did you mean {near[0]}?" if near else ""
