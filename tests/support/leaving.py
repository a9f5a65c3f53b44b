"""How the requests of every relayed path are left: in which phase, by whom, and what their clients are told.

tests/api/test_cancel.py asks all of them of a real engine; the tables in docs/relay.md are made from the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.support.made import ROOT, Made

Phase = Literal["queued", "loading", "prefill", "decode"]
PHASES: Final[Mapping[Phase, str]] = {
    "queued": "waits for a slot",
    "loading": "waits for a load",
    "prefill": "prompt is read",
    "decode": "tokens come",
}
WAITING: Final = frozenset({"queued", "loading"})

Way = Literal["leaves", "cancelled", "unloaded", "stopped"]
WAYS: Final[Mapping[Way, tuple[str, str, str]]] = {
    "leaves": ("its client closes the connection", "", ""),
    "cancelled": ("`DELETE /api/v1/requests/{id}`", "request_cancelled", "request_cancelled"),
    "unloaded": ("`unload --now` of its model", "load_cancelled", "engine_lost"),
    "stopped": ("the daemon stops, after `server.drain`", "shutting_down", "engine_lost"),
}
"""What ends a request, and the code that its client is told: while it waits, and while it is answered."""

STATUS: Final[Mapping[str, int]] = {
    "request_cancelled": 499,
    "load_cancelled": 503,
    "shutting_down": 503,
    "engine_lost": 502,
}
"""By code, where no stream has begun."""

LIMIT_TOKENS: Final = 100_000  # of an answer: more than any test waits for
ENDLESS: Final = "endless"  # the word after which the scripted model never ends
LONG: Final = "x " * 30_000 + ENDLESS  # a byte is a token of the scripted model: seconds to read
TEXTS: Final = ("x " * 12,) * 150  # likewise, where every text is read by itself

_TOOL: Final = {"name": "ping", "parameters": {"type": "object", "properties": {}}}


@dataclass(frozen=True)
class Case:
    """A request of a relayed path.

    Attributes:
        path: of its row. name: what is special about it.
        body: of a request that is answered at once.
        slow: what of it changes, so that its prompt takes long to read; None: it computes nothing.
        endless: and so that its answer never ends; None: nothing is generated.
        upstream: it is asked below /upstream/MODEL.
    """

    path: str
    body: Mapping[str, Any]
    slow: Mapping[str, Any] | None = None
    endless: Mapping[str, Any] | None = None
    name: str = ""
    upstream: bool = False

    def __str__(self) -> str:
        return f"{'upstream ' * self.upstream}{self.path} {self.name}".strip()

    def target(self, model: str) -> str:
        """The path that is asked."""
        return f"/upstream/{model}{self.path}" if self.upstream else self.path

    def asked(self, model: str, phase: Phase, *, stream: bool) -> dict[str, Any]:
        """The body for a phase."""
        change = {"prefill": self.slow, "decode": self.endless}.get(phase) or {}
        return {"model": model, "stream": stream, **self.body, **change}

    def has(self, phase: Phase) -> bool:
        """Whether a request can be left in this phase."""
        return {"prefill": self.slow, "decode": self.endless}.get(phase, {}) is not None


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _talk(path: str, name: str = "", *, upstream: bool = False, **more: Any) -> Case:
    body = {"messages": _said("Hi"), "max_tokens": LIMIT_TOKENS, **more}
    return Case(path, body, {"messages": _said(LONG)}, {"messages": _said(ENDLESS)}, name, upstream)


def _respond(name: str = "", *, upstream: bool = False, **more: Any) -> Case:
    return Case("/v1/responses", {"input": "Hi", **more}, {"input": LONG}, {"input": ENDLESS}, name, upstream)


def _continue(path: str, limit: str, *, upstream: bool = False) -> Case:
    start = {"prompt": f"<|say:word:{ENDLESS}|>"}  # one token of the scripted model, which says that text after it
    return Case(path, {"prompt": "Hi", limit: LIMIT_TOKENS}, {"prompt": LONG}, start, upstream=upstream)


def _lines(path: str, name: str = "", *, word: str = ENDLESS, **more: Any) -> Case:
    """A request of Ollama's API; its question is a conversation or a prompt."""
    limit = {"options": {"num_predict": LIMIT_TOKENS}}

    def asked(text: str) -> dict[str, Any]:
        return {"messages": _said(text)} if path == "/api/chat" else {"prompt": text}

    return Case(path, {**asked("Hi"), **limit, **more}, asked(LONG), asked(word), name)


CASES: Final[tuple[Case, ...]] = (
    _talk("/v1/chat/completions"),
    _talk("/v1/chat/completions", "with tools", tools=[{"type": "function", "function": _TOOL}]),
    _talk("/v1/chat/completions", upstream=True),
    _continue("/v1/completions", "max_tokens"),
    _respond(),
    _respond("with tools", tools=[{"type": "function", **_TOOL}]),
    _respond(upstream=True),
    _talk("/v1/messages"),
    _talk("/v1/messages", "with tools", tools=[{"name": "ping"}]),
    _talk("/v1/messages", "tool calls off", tool_calls="off"),
    _talk("/v1/messages", upstream=True),
    _continue("/completion", "n_predict"),
    _continue("/completion", "n_predict", upstream=True),
    Case(
        "/infill",
        {"input_prefix": "a", "input_suffix": "b", "n_predict": LIMIT_TOKENS},
        {"prompt": LONG},
        {},
    ),
    Case("/v1/embeddings", {"input": "Hi"}, {"input": TEXTS}),
    Case("/embeddings", {"content": "Hi"}, {"content": TEXTS}),
    Case("/v1/rerank", {"query": "Hi", "documents": ["a", "b"]}, {"documents": TEXTS}),
    Case("/tokenize", {"content": "Hi"}),
    Case("/detokenize", {"tokens": [5, 6]}),
    Case("/apply-template", {"messages": _said("Hi")}),
    Case("/v1/chat/completions/input_tokens", {"messages": _said("Hi")}),
    Case("/v1/chat/completions/control", {"id": "chatcmpl-none", "action": "reasoning_end"}),
    Case("/v1/responses/input_tokens", {"input": "Hi"}),
    Case("/v1/messages/count_tokens", {"messages": _said("Hi")}),
    _lines("/api/chat"),
    _lines("/api/chat", "with tools", tools=[{"type": "function", "function": _TOOL}]),
    _lines("/api/generate"),
    _lines("/api/generate", "raw", word=f"<|say:word:{ENDLESS}|>", raw=True),
    Case("/api/embed", {"input": "Hi"}, {"input": TEXTS}),
    Case("/api/embeddings", {"prompt": "Hi"}),  # one text, which is no longer than a batch
    _talk("/api/v0/chat/completions"),
    _continue("/api/v0/completions", "max_tokens"),
    Case("/api/v0/embeddings", {"input": "Hi"}, {"input": TEXTS}),
)

_PHASES_HEAD = "| path | " + " | ".join(PHASES.values()) + " |\n|---|---|---|---|---|\n"
_WAYS_HEAD = "| what ends a request | while it waits | while it is answered |\n|---|---|---|\n"


def phases_table() -> str:
    """Every path, and in which phases its requests are left."""
    rows = dict.fromkeys(case.path for case in CASES)
    return _PHASES_HEAD + "".join(_phases(path) for path in rows)


def _phases(path: str) -> str:
    cases = [case for case in CASES if case.path == path]
    cells = ["at once" if any(case.has(phase) for case in cases) else "" for phase in PHASES]
    generates = any(case.has("decode") for case in cases)
    if cells[2] and not generates:
        cells[2] = "once its texts are read"
    return f"| `{path}` | {' | '.join(cells)} |\n"


def ways_table() -> str:
    """What ends a request, and what its client is told."""
    return _WAYS_HEAD + "".join(
        f"| {said} | {_told(waiting)} | {_told(answered, 'a stream that has begun ends with it')} |\n"
        for said, waiting, answered in WAYS.values()
    )


def _told(code: str, more: str = "") -> str:
    if not code:
        return "nobody is told"
    return f"{STATUS[code]} `{code}`" + (f"; {more}" if more else "")


def _made(head: str, make: Any) -> Made:
    return Made(ROOT / "docs" / "relay.md", re.compile(re.escape(head) + r"(?:\|.*\|\n?)+"), make)


TABLES: Final = (_made(_PHASES_HEAD, phases_table), _made(_WAYS_HEAD, ways_table))
