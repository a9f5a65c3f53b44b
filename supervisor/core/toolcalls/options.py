"""The options of recovery and its limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The way to recover calls.

    Attributes:
        enabled: False hands everything on untouched.
        parallel_tool_calls: False keeps the first call only.
        bare_json: calls without any marker count where they are the whole message.
        fence_calls: so do calls in a code fence that is the whole message.
        think_calls: a call that ends reasoning which was never closed is a call.
        split_think: a think block at the start of the content becomes reasoning; else it stays content, unscanned.
        think_open: the template has opened the think block in the prompt, so the content begins inside it.
        forward_unknown: calls of tools that were not offered count as calls.
        coerce: types follow the tool's schema.
        dialects: only these; None for all.
        pieces_after: arguments longer than this many characters are given out while they arrive; None for never.
        max_hold: characters that may be held back for one call; a longer one stays text.
        tool_calls_last: events of calls come with `finish`.
    """

    enabled: bool = True
    parallel_tool_calls: bool = True
    bare_json: bool = True
    fence_calls: bool = True
    think_calls: bool = True
    split_think: bool = True
    think_open: bool = False
    forward_unknown: bool = False
    coerce: bool = True
    dialects: frozenset[str] | None = None
    pieces_after: int | None = 512
    max_hold: int = 1024 * 1024
    tool_calls_last: bool = False
