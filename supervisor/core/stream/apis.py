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
        is_last: whether an event, without the empty line after it, is the last one of a complete stream.
        stream_error: what ends a stream that broke off: from the error object `message`, `type`, `code`, `param`.
        envelope: the body of an error response, from OpenAI's `{"error": {…}}` and the request's id, if it is known.
        id_header: the name under which the API's own clients look for the request's id, besides `x-request-id`.
        after_error: what follows the engine's own error in a stream; it sends nothing more itself.
    """

    is_last: Callable[[bytes], bool]
    stream_error: Callable[[Mapping[str, object]], bytes]
    envelope: Callable[[Mapping[str, object], str | None], Mapping[str, object]]
    id_header: bytes | None = None
    after_error: bytes = b""


_DONE_EVENT: Final = encode(SseEvent(DONE))


def _begins(*beginnings: bytes) -> Callable[[bytes], bool]:
    return lambda event: event.startswith(beginnings)


def _is_last_raw(event: bytes) -> bool:
    """Every other event says `"stop":false`; the last one says true, or lacks it where `response_fields` does.

    Quotation marks in texts are escaped, so no text looks like that.
    """
    return event.startswith(b"data: {") and b'"stop":false' not in event


def _raw_error(error: Mapping[str, object]) -> bytes:
    return encode(SseEvent(json.dumps({"error": dict(error)})))


def _openai_error(error: Mapping[str, object]) -> bytes:
    return _raw_error(error) + _DONE_EVENT


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


OPENAI: Final = Api(_begins(b"data: [DONE]"), _openai_error, _as_it_is, after_error=_DONE_EVENT)
RESPONSES: Final = Api(
    _begins(b"event: response.completed", b"event: response.incomplete", b"event: response.failed"),
    _responses_error,
    _as_it_is,
)
ANTHROPIC: Final = Api(_begins(b"event: message_stop"), _anthropic_error, _anthropic, b"request-id")
RAW: Final = Api(_is_last_raw, _raw_error, _as_it_is)
"""llama-server's own form, `/completion` and `/infill`: no event follows the last one of the answer."""
