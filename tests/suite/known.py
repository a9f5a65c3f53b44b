"""Tests of llama.cpp's server whose outcome through us differs, and why."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

KNOWN: Mapping[str, tuple[str, ...]] = {}
"""Reasons, a sentence each, and the tests: patterns of their names."""


def reason_of(test: str, known: Mapping[str, tuple[str, ...]] = KNOWN) -> str | None:
    """Return why a test differs; None if that is not known."""
    plain = test.partition("[")[0] + test[len(test.partition("[")[0]) :].translate(_PLAIN)
    return next((why for why, names in known.items() if any(fnmatchcase(plain, one) for one in names)), None)


_PLAIN = str.maketrans("[]*?", "    ")
