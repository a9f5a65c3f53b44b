"""Find the name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_ALIKE = 0.7  # share of letters that two names have in common and in order, as difflib counts: one slip in four letters
_TELLING = 2  # letters of which a name must consist to count as the beginning of a longer one
_LONGEST = 256  # letters of a name that may be a slip: comparing takes their square


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` if one of the names is similar to this one, else nothing.

    A name that begins with what was typed comes first, the shortest of several; then the one most alike.
    """
    if len(name) > _LONGEST:
        return ""
    known = {one.lower(): one for one in sorted(names)}
    typed = name.lower()
    longer = [one for one in known if one.startswith(typed)] if len(typed) >= _TELLING else []
    near = sorted(longer, key=len)[:1] or difflib.get_close_matches(typed, known, n=1, cutoff=_ALIKE)
    return f"; did you mean {known[near[0]]}?" if near else ""
