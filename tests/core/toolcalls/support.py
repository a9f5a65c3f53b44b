"""Feeds the recoverer in any pieces and folds its events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from supervisor.core.toolcalls import (
    CallArguments,
    CallEnd,
    CallStart,
    Dropped,
    Event,
    LeftAsText,
    Options,
    Recoverer,
    Text,
)  # fmt: skip
from tests.core.toolcalls.corpus import Case


@dataclass(frozen=True)
class Result:
    """What the events amount to.

    Attributes:
        calls: (name, text of the arguments) in order.
        raw: text and dropped text of each channel: what was fed.
    """

    content: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    ids: tuple[str, ...]
    dialects: tuple[str, ...]
    complete: tuple[bool, ...]
    raw: dict[str, str]

    def parsed(self) -> tuple[tuple[str, Any], ...]:
        return tuple((name, json.loads(arguments)) for name, arguments in self.calls)


def folded(events: Iterable[Event]) -> Result:
    """Fold, and check the grammar of events on the way: starts, pieces, ends; one call open at a time."""
    text = {"content": "", "reasoning": ""}
    raw = {"content": "", "reasoning": ""}
    starts: list[CallStart] = []
    arguments: list[str] = []
    complete: list[bool] = []
    for event in events:
        if isinstance(event, Text):
            assert event.text
            text[event.channel] += event.text
            raw[event.channel] += event.text
        elif isinstance(event, Dropped):
            raw[event.channel] += event.text
        elif isinstance(event, CallStart):
            assert event.index == len(starts) == len(complete), "dense, and one after the other"
            starts.append(event)
            arguments.append("")
        elif isinstance(event, CallArguments):
            assert event.index == len(starts) - 1 == len(complete)
            assert event.text
            arguments[-1] += event.text
        elif isinstance(event, CallEnd):
            assert event.index == len(starts) - 1 == len(complete)
            complete.append(event.complete)
        else:
            assert isinstance(event, LeftAsText)
    assert len(complete) == len(starts)
    return Result(
        content=text["content"],
        reasoning=text["reasoning"],
        calls=tuple((start.name, given) for start, given in zip(starts, arguments, strict=True)),
        ids=tuple(start.id for start in starts),
        dialects=tuple(start.dialect for start in starts),
        complete=tuple(complete),
        raw=raw,
    )


def recover(case: Case, pieces: Iterable[str] | None = None, **options: Any) -> Result:
    """Feed a case's content in these pieces (default: whole)."""
    recoverer = Recoverer(case.tools, case.choice, Options(**{"pieces_after": None, **case.options, **options}))
    events: list[Event] = []
    if case.reasoning_in:
        events += recoverer.feed("reasoning", case.reasoning_in)
    for piece in [case.text] if pieces is None else pieces:
        events += recoverer.feed("content", piece)
    return folded([*events, *recoverer.finish(case.finish)])
