"""Texts of the corpora with damage, and what becomes of each: `python -m tests.core.toolcalls.damaged` keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.core.toolcalls import CallEnd, Event, LeftAsText, Options, Recoverer
from tests.core.toolcalls.corpus import Case, closers, dialects, malformations, negatives
from tests.core.toolcalls.support import folded
from tests.support.recorded import Dice, write

CORPORA = {"closers": closers, "dialects": dialects, "malformations": malformations, "negatives": negatives}
OF_EACH = 10
_PIECES = (
    *("{", "}", "[", "]", '"', "'", ":", ",", "\n", " ", "`", "(", ")", "=", "\\", "<", ">", "/", "|", "\n\n", "```\n"),
    *("<tool_call>", "</tool_call>", '{"name": "get_weather", "arguments": {', "<parameter=city>", "</parameter>"),
    *("get_weather", "Paris", "null", "true", "1.5", "-3", "é", "\\u00e9", "\\n", '\\"', "\0"),
)


def kept(corpus: str) -> Path:
    """The file with what became of a corpus."""
    return Path(__file__).parent / "data" / f"damaged-{corpus}.json"


def damaged(case: Case) -> Iterator[Case]:
    """The case with parts that are cut off, left out, doubled, or replaced by something else."""
    for number in range(OF_EACH):
        dice = Dice(case.id, number)
        text, finish = case.text, case.finish
        for _ in range(1 + dice.below(2)):
            start = dice.below(len(text) + 1)
            stop = min(len(text), start + dice.below(13))
            kind = dice.one_of(("cut", "leave out", "double", "replace", "insert"))
            middle = {"double": text[start:stop] * 2, "replace": dice.one_of(_PIECES)}.get(kind, "")
            if kind == "insert":
                middle, stop = dice.one_of(_PIECES), start
            if kind == "cut":
                text, finish = text[:start], dice.one_of(("length", "stop"))
            else:
                text = text[:start] + middle + text[stop:]
        yield replace(case, text=text, finish=finish)


def outcome(case: Case) -> dict[str, Any]:
    """What becomes of a case, fed whole."""
    recoverer = Recoverer(case.tools, case.choice, Options(**{"pieces_after": None, **case.options}))
    events: list[Event] = list(recoverer.feed("reasoning", case.reasoning_in)) if case.reasoning_in else []
    events += [*recoverer.feed("content", case.text), *recoverer.finish(case.finish)]
    found = folded(events)
    return {
        "text": case.text,
        "content": found.content,
        "reasoning": found.reasoning,
        "calls": found.calls,
        "dialects": found.dialects,
        "complete": found.complete,
        "fed": found.raw,
        "repaired": [event.repaired for event in events if isinstance(event, CallEnd)],
        "left": [(event.opener, event.why) for event in events if isinstance(event, LeftAsText)],
    }


def outcomes(corpus: str) -> dict[str, list[dict[str, Any]]]:
    """What becomes of each case of a corpus, whole and damaged, by its id."""
    return {case.id: [outcome(case), *map(outcome, damaged(case))] for case in CORPORA[corpus].CASES}


if __name__ == "__main__":
    for one in CORPORA:
        write(kept(one), outcomes(one))
