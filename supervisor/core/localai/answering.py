"""Answers of the daemon, whole or in pieces, as LocalAI's replies.

LocalAI takes counts and times from the last reply, so the last one has the totals, and none before has any. What a
reply has in `chat_deltas` is not looked for in its text again: an answer in a conversation has both, a continued text
has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervisor.core.localai.messages import (
    ChatDelta,
    DocumentResult,
    EmbeddingResult,
    Reply,
    RerankResult,
    ToolCallDelta,
    Usage,
)
from supervisor.core.text.foreignjson import written

Json = Mapping[str, Any]

POOLED = 1
"""The layout of vectors of which each stands for a whole text."""


def whole(answer: Json, *, is_chat: bool) -> Reply:
    """Return the reply for an answer in one piece."""
    choice = _first(answer)
    delta = _delta(choice.get("message") or {}) if is_chat else ChatDelta(choice.get("text") or "")
    probabilities = (choice.get("logprobs") or {}).get("content") or []
    return _reply(answer, delta, is_chat, probabilities)


@dataclass
class Stream:
    """An answer in pieces: a reply for each that says something, and a last one with the totals."""

    is_chat: bool
    _last: dict[str, Any] = field(default_factory=dict)
    _probabilities: list[Any] = field(default_factory=list)

    def piece(self, chunk: Json) -> Reply | None:
        """Return the reply for a chunk; None for one without text, reasoning and calls."""
        self._last |= {name: chunk[name] for name in ("usage", "timings") if chunk.get(name)}
        choice = _first(chunk)
        self._probabilities += (choice.get("logprobs") or {}).get("content") or []
        delta = _delta(choice.get("delta") or {}) if self.is_chat else ChatDelta(choice.get("text") or "")
        if delta == ChatDelta():
            return None
        return Reply(message=_bytes(delta.content), chat_deltas=(delta,) if self.is_chat else ())

    def end(self) -> Reply:
        """Return the last reply."""
        return _reply(self._last, ChatDelta(), self.is_chat, self._probabilities)


def _reply(answer: Json, delta: ChatDelta, is_chat: bool, probabilities: Sequence[Any]) -> Reply:
    usage, timings = answer.get("usage") or {}, answer.get("timings") or {}
    return Reply(
        message=_bytes(delta.content),
        tokens=int(usage.get("completion_tokens") or 0),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        timing_prompt_processing=float(timings.get("prompt_ms") or 0),
        timing_token_generation=float(timings.get("predicted_ms") or 0),
        logprobs=written({"content": list(probabilities)}) if probabilities else b"",
        chat_deltas=(delta,) if is_chat and delta != ChatDelta() else (),
    )


def _first(answer: Json) -> Json:
    choices = answer.get("choices") or ()
    return choices[0] if choices else {}


def _delta(message: Json) -> ChatDelta:
    calls = enumerate(message.get("tool_calls") or ())
    return ChatDelta(
        content=message.get("content") or "",
        reasoning_content=message.get("reasoning_content") or "",
        tool_calls=tuple(_call(one, place) for place, one in calls),
    )


def _call(call: Json, place: int) -> ToolCallDelta:
    function = call.get("function") or {}
    return ToolCallDelta(
        index=int(call.get("index", place)),
        id=call.get("id") or "",
        name=function.get("name") or "",
        arguments=function.get("arguments") or "",
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def vectors(answer: Json) -> EmbeddingResult:
    """Return the reply for vectors."""
    found = [one["embedding"] for one in answer.get("data") or ()]
    return EmbeddingResult(
        embeddings=tuple(number for vector in found for number in vector),
        tokens=len(found),
        dim=len(found[0]) if found else 0,
        prompt_tokens=int((answer.get("usage") or {}).get("prompt_tokens") or 0),
        layout=POOLED,
    )


def ranked(answer: Json, documents: Sequence[str]) -> RerankResult:
    """Return the reply for documents in order."""
    usage = answer.get("usage") or {}
    return RerankResult(
        usage=Usage(int(usage.get("total_tokens") or 0), int(usage.get("prompt_tokens") or 0)),
        results=tuple(
            DocumentResult(one["index"], documents[one["index"]], one["relevance_score"])
            for one in answer.get("results") or ()
        ),
    )
