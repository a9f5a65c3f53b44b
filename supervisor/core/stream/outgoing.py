"""Choose what to ask the engine for, given what the client asked us for.

llama-server notices that a client is gone at once only on a stream that also reports prompt progress: without
progress it does not look during prefill, without a stream only after a second of silence on a queue that all
requests share. So generations are always asked for with `stream` and `return_progress`; `filter.py` takes out what the
client did not ask for, `fold.py` makes one object of the stream for a client that wanted one.

Some single answers cannot be folded faithfully from a stream (`why_not_folded`); those are passed on as they are
and a client that leaves is noticed late. A body that the engine would refuse is passed on untouched too, so that
the client gets the engine's own words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from supervisor.core.stream.chat import ChatFold, asks_for_one
from supervisor.core.stream.completions import CompletionFold
from supervisor.core.stream.fold import Collector, StreamFold
from supervisor.core.stream.raw_completions import RawFold
from supervisor.core.stream.responses import ResponsesFold
from supervisor.core.stream.transcripts import TranscriptFold

Kind = Literal["chat", "completion", "responses", "raw", "transcript"]
"""Of answers that can be folded from a stream. `raw`: the engine's own form, not OpenAI's."""


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """The request to the engine.

    Attributes:
        changes: fields to set in the client's body; empty: send it as it came.
        kind: of the answer to fold; None when the engine's answer is passed on, streamed or not.
        drop_progress: prompt progress chunks are ours, not the client's.
        reason: why a single answer is asked for as such, with its late notice of a client that left; else None.
        fields: the names of the fields that the client wants of a raw answer; empty: all.
    """

    changes: Mapping[str, object] = field(default_factory=dict)
    kind: Kind | None = None
    drop_progress: bool = False
    reason: str | None = None
    fields: tuple[str, ...] = ()

    def telling(self, body: Mapping[str, object]) -> OutgoingRequest:
        """Return the same, but that the answer tells its tokens, whatever the client's `body` wants left out of it."""
        wanted = {**body, **self.changes}.get("response_fields")
        if not isinstance(wanted, list) or not wanted:
            return self
        return replace(self, changes={**self.changes, "response_fields": [*wanted, "timings"]})

    def new_fold(self) -> StreamFold | None:
        """Return a collector for this answer; None when it is passed on."""
        return None if self.kind is None else StreamFold(self._collector(self.kind))

    def _collector(self, kind: Kind) -> Collector:
        match kind:
            case "chat":
                return ChatFold()
            case "completion":
                return CompletionFold()
            case "responses":
                return ResponsesFold()
            case "raw":
                return RawFold(self.fields)
            case "transcript":
                return TranscriptFold()


def outgoing_request(kind: Kind | None, body: Mapping[str, object]) -> OutgoingRequest:
    """Return the plan for a client's parsed JSON body; an empty one where nothing can be folded (`kind` is None)."""
    if kind is None or not _well_formed(body):
        return OutgoingRequest()
    if kind == "transcript":  # a form's fields are texts, and progress is asked for with a boolean
        return OutgoingRequest() if body.get("stream") else OutgoingRequest({"stream": True}, kind=kind)
    if body.get("stream"):
        if body.get("return_progress"):
            return OutgoingRequest()
        return OutgoingRequest({"return_progress": True}, drop_progress=True)
    reason = why_not_folded(kind, body)
    if reason is not None:
        return OutgoingRequest(reason=reason)
    changes: dict[str, object] = {"stream": True, "return_progress": True}
    fields: tuple[str, ...] = ()
    if kind == "chat":  # a streamed text completion always ends with its usage
        options = body.get("stream_options")
        changes["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        if body.get("continue_final_message"):  # a stream leaves out what is continued, a single answer does not
            changes["echo"] = True
    if kind == "raw" and body.get("response_fields"):  # they would be taken out of the last event only
        fields = tuple(map(str, cast(list[object], body["response_fields"])))
        changes["response_fields"] = []
    return OutgoingRequest(changes, kind=kind, fields=fields)


def why_not_folded(kind: Kind, body: Mapping[str, object]) -> str | None:
    """Return the reason why this single answer cannot be made from a stream, if there is one. Each reason is a test."""
    for rule, reason in _UNFOLDABLE[kind]:
        if rule(body):
            return reason
    return None


def _well_formed(body: Mapping[str, object]) -> bool:
    flags = (body.get("stream"), body.get("return_progress"))
    options, fields = body.get("stream_options"), body.get("response_fields")
    lists = isinstance(options, dict | None) and isinstance(fields, list | None)
    return lists and all(flag is None or isinstance(flag, bool) for flag in flags)


def _wants_probabilities(body: Mapping[str, object]) -> bool:
    return bool(body.get("logprobs") or body.get("n_probs"))


_MOST_FOLDED = 128
"""Probabilities of each token. An engine gives as many as its vocabulary has tokens: megabytes for each token."""


def _wants_many_probabilities(body: Mapping[str, object]) -> bool:
    counts = (body.get("logprobs"), body.get("n_probs"))
    return any(isinstance(count, int | float) and count > _MOST_FOLDED for count in counts)


Rule = tuple[Callable[[Mapping[str, object]], bool], str]

_INDENTED: Rule = (
    lambda body: bool(body.get("n_indent")),
    "a single answer leaves out the line that is indented too little, a stream has sent it already",
)
_TOKENS = "a stream lacks the tokens that hold a part of a character each"
_STOPPED: Rule = (
    lambda body: _wants_probabilities(body) and bool(body.get("stop")),
    "a single answer leaves out the probabilities of the stop word's tokens, a stream has sent them already",
)
_MANY: Rule = (_wants_many_probabilities, "what is folded is read, and that many probabilities take long to read")

_UNFOLDABLE: Mapping[Kind, tuple[Rule, ...]] = {
    "chat": (
        (
            _wants_probabilities,
            "a streamed chat shows probabilities only of tokens that show text (none of the end token, of markup or "
            "of a piece held back), and is refused together with tools",
        ),
        (lambda body: bool(body.get("verbose")), "the debugging object of a stream lacks the text as it was generated"),
        _INDENTED,
    ),
    "completion": (
        _MANY,
        _STOPPED,
        (lambda body: bool(body.get("verbose") and body.get("return_tokens")), _TOKENS),
        _INDENTED,
    ),
    "responses": (
        (_wants_probabilities, "a streamed chat with probabilities is refused together with tools"),
        (lambda body: not asks_for_one(body), "the answers of several choices cannot be told apart"),
        _INDENTED,
    ),
    "transcript": (),
    "raw": (
        _MANY,
        _STOPPED,
        (lambda body: bool(body.get("return_tokens")), _TOKENS),
        _INDENTED,
    ),
}
