"""The APIs whose answers are relayed: how a stream of each ends, and how each reports an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.stream.sse import DONE, SseEvent, encode


@dataclass(frozen=True, slots=True)
class Api:
    """An API.

    Attributes:
        ends: how the last event of a complete stream begins.
        stream_error: what ends a stream that broke off: from the error object `message`, `type`, `code`, `param`.
        envelope: the body of an error response, from OpenAI's `{"error": {…}}` and the request's id, if it is known.
        id_header: the name under which the API's own clients look for the request's id, besides `x-request-id`.
    """

    ends: tuple[bytes, ...]
    stream_error: Callable[[Mapping[str, object]], bytes]
    envelope: Callable[[Mapping[str, object], str | None], Mapping[str, object]]
    id_header: bytes | None = None


def _openai_error(error: Mapping[str, object]) -> bytes:
    return encode(SseEvent(json.dumps({"error": dict(error)}))) + encode(SseEvent(DONE))


def _responses_error(error: Mapping[str, object]) -> bytes:
    said = {"type": "error", **{key: error.get(key) for key in ("code", "message", "param")}}
    return encode(SseEvent(json.dumps(said), event="error"))


def _as_it_is(envelope: Mapping[str, object], _request_id: str | None) -> Mapping[str, object]:
    return envelope


def _anthropic(envelope: Mapping[str, object], request_id: str | None = None) -> Mapping[str, object]:
    error = envelope.get("error")
    known: Mapping[str, object] = error if isinstance(error, Mapping) else {}
    said = {"type": "error", "error": {**known, "type": known.get("type", "api_error")}}
    return said if request_id is None else {**said, "request_id": request_id}


def _anthropic_error(error: Mapping[str, object]) -> bytes:
    return encode(SseEvent(json.dumps(_anthropic({"error": error})), event="error"))


OPENAI: Final = Api((b"data: [DONE]",), _openai_error, _as_it_is)
RESPONSES: Final = Api(
    (b"event: response.completed", b"event: response.incomplete", b"event: response.failed"),
    _responses_error,
    _as_it_is,
)
ANTHROPIC: Final = Api((b"event: message_stop",), _anthropic_error, _anthropic, b"request-id")
