"""No regular expression of the program takes more than linear time, whatever a model, a client or a hub says."""

from __future__ import annotations

import re
import time
from typing import Any, Final

import pytest

from tests.support.patterns import Found, all_patterns, hostile

PATTERNS: Final = list(all_patterns())
BOUNDED: Final = {
    "supervisor.core.engine_output.failures": "lines are cut to 1,000 characters before",
    "supervisor.core.engine_output.footprint": "lines are cut to 1,000 characters before",
    "supervisor.llamacpp.index": "reads what the installed pip says of itself",
}
"""Modules in which time may grow faster, and why nobody can use that; on a thousand characters they are quick, too."""
LATER: Final = {
    "supervisor.config.imports.swap_commands": "a number of at most five digits",
    "supervisor.core.engine_output.failures": "the patterns of its rules, which are tried below as they are",
    "supervisor.core.speed.published": "a name of ours",
    "supervisor.core.spec.template": "words around one name, of templates whose length is bounded",
    "supervisor.core.toolcalls.dialects.gemma": "one text of ours",
    "supervisor.core.toolcalls.dialects.python": "one of two characters",
    "supervisor.core.toolcalls.registry": "one class of characters",
    "supervisor.core.toolcalls.source": "one of several texts",
    "supervisor.core.toolcalls.think": "one class of characters",
    "supervisor.llamacpp.release": "names of a release's files, whose length the listing bounds",
}
"""Modules in which a function puts a pattern together, and why it takes linear time, or cannot be used to take more."""
_SMALL: Final = 0.004  # seconds of CPU; a text of 4,000 characters takes far less where time is linear


def seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """Of CPU, for using the pattern once."""
    subject: Any = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
    more = (subject[:0],) if method in {"sub", "subn"} else ()
    begun = time.thread_time()
    used = getattr(pattern, method)(*more, subject)
    if method == "finditer":
        list(used)
    return time.thread_time() - begun


def slow(pattern: re.Pattern[Any], method: str, longest: int = 4000) -> str:
    """A kind of text on which time grows faster than length; empty if there is none."""
    for first, unit, tail in hostile(pattern):

        def took(count: int, first: str = first, unit: str = unit, tail: str = tail) -> float:
            text = first + unit * (count // max(1, len(unit))) + tail
            return seconds(pattern, method, text)

        for count in (20, 60, 250, longest):
            if took(count) > _SMALL and min(took(count) for _ in range(3)) > max(
                _SMALL, 8 * min(took(count // 4) for _ in range(5))
            ):
                return f"{first!r} + {unit!r} × {count // len(unit)} + {tail!r}"
    return ""


@pytest.mark.cost
@pytest.mark.parametrize("found", [one for one in PATTERNS if one.pattern], ids=lambda found: found.place)
def test_time_grows_with_length(found: Found) -> None:
    assert found.pattern is not None
    longest = 1000 if found.place.partition(":")[0] in BOUNDED else 4000
    for method in found.methods:
        assert not slow(found.pattern, method, longest), f"{method} of {found.text}"


def test_patterns_that_are_put_together_later_are_known() -> None:
    assert {one.place.partition(":")[0] for one in PATTERNS if one.pattern is None} == set(LATER)


def test_the_texts_find_what_is_careless() -> None:
    for careless in (r"(a+)+$", r"\w+=", r"\s*=?\s*(?:name\s*=)?\s*x", r"<[^>]*>", r"^\s+|\s+$"):
        assert slow(re.compile(careless), "search"), careless
    for careful in (r"\b\w++=", r"a*", r"[^<\n]*", r"<[^<>]{0,40}>"):
        assert not slow(re.compile(careful), "search"), careful
