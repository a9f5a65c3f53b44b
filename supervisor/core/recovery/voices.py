"""Say an answer's chunks to the client in the form of the API that it asked through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Protocol

from supervisor.core.recovery.typed import Choice, Chunk, Delta
from supervisor.core.stream.sse import DONE, SseEvent, encode


class Voice(Protocol):
    """One answer in one API's form.

    Attributes:
        verbatim: chunks of a chat are what the client wants, so one of which nothing changes goes on as it is.
        comments: a stream may have comments, as server-sent events have.
    """

    verbatim: bool
    comments: bool

    def chunk(self, chunk: Chunk, /) -> bytes:
        """Return the events for a chunk of a chat."""
        ...

    def end(self) -> bytes:
        """Return the end of a complete stream."""
        ...

    def error(self, error: Mapping[str, object], /) -> bytes:
        """Return the end of one that failed; `error` is OpenAI's error object."""
        ...

    def whole(self, answer: Chunk, /) -> Mapping[str, object]:
        """Return the object for a whole answer of a chat."""
        ...


class ChatVoice:
    """Chunks of a chat as they are."""

    verbatim = True
    comments = True

    def chunk(self, chunk: Chunk) -> bytes:
        """Return one event."""
        return _event(chunk)

    def end(self) -> bytes:
        """Return `[DONE]`."""
        return _DONE_EVENT

    def error(self, error: Mapping[str, object]) -> bytes:
        """Return an event of its own, then `[DONE]`."""
        return _event({"error": dict(error)}) + _DONE_EVENT

    def whole(self, answer: Chunk) -> Mapping[str, object]:
        """Return the answer."""
        return answer


_DONE_EVENT: Final = encode(SseEvent(DONE))


def compact(value: Mapping[str, object]) -> str:
    """Return JSON as the engine writes it.

    Halves of surrogate pairs, which no UTF-8 can hold, become question marks.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


def _event(said: Mapping[str, object]) -> bytes:
    return encode(SseEvent(compact(said)))


def named(event: Mapping[str, object]) -> bytes:
    """Return an event whose name is its `type`."""
    return encode(SseEvent(compact(event), event=str(event["type"])))


def message_of(answer: Chunk) -> tuple[Delta, str | None]:
    """Return message and finish reason of a chat's only choice."""
    choices = answer.get("choices")
    choice: Choice = choices[0] if isinstance(choices, list) and choices else {}
    return choice.get("message") or {}, choice.get("finish_reason")
