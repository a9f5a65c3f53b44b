"""How an answer's chunks are said to the client: in the form of the API that it asked through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from supervisor.core.stream.sse import DONE, SseEvent, encode


class Voice(Protocol):
    """One answer in one API's form.

    Attributes:
        verbatim: chunks of a chat are what the client wants, so one of which nothing changes goes on as it is.
    """

    verbatim: bool

    def chunk(self, chunk: Mapping[str, Any], /) -> bytes:
        """The events for a chunk of a chat."""
        ...

    def end(self) -> bytes:
        """The end of a complete stream."""
        ...

    def error(self, error: Mapping[str, Any], /) -> bytes:
        """The end of one that failed; `error` is OpenAI's error object."""
        ...

    def whole(self, answer: Mapping[str, Any], /) -> Mapping[str, Any]:
        """The object for a whole answer of a chat."""
        ...


class ChatVoice:
    """Chunks of a chat as they are."""

    verbatim = True

    def chunk(self, chunk: Mapping[str, Any]) -> bytes:
        """One event."""
        return encode(SseEvent(compact(chunk)))

    def end(self) -> bytes:
        """`[DONE]`."""
        return _DONE_EVENT

    def error(self, error: Mapping[str, Any]) -> bytes:
        """An event of its own, then `[DONE]`."""
        return self.chunk({"error": dict(error)}) + _DONE_EVENT

    def whole(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer."""
        return answer


_DONE_EVENT: Final = encode(SseEvent(DONE))


def compact(value: Mapping[str, Any]) -> str:
    """JSON as the engine writes it; halves of surrogate pairs, which no UTF-8 can hold, become question marks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


def named(event: Mapping[str, Any]) -> bytes:
    """An event whose name is its `type`."""
    return encode(SseEvent(compact(event), event=event["type"]))


def message_of(answer: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """Message and finish reason of a chat's only choice."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    return choice.get("message") or {}, choice.get("finish_reason")
