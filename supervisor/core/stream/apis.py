"""The APIs whose answers are relayed: how a stream of each ends, and how each reports an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.stream.sse import DONE, SseEvent, encode
from supervisor.core.text.foreignjson import written


@dataclass(frozen=True, slots=True)
class Api:
    """An API.

    Attributes:
        is_last: whether an event, without the empty line after it, is the last one of a complete stream.
        stream_error: what ends a stream that broke off: from the error object `message`, `type`, `code`, `param`.
        envelope: the body of an error response, from OpenAI's `{"error": {…}}` and the request's id, if it is known.
        id_header: the name under which the API's own clients look for the request's id, besides `x-request-id`.
        after_error: what follows the engine's own error in a stream; it sends nothing more itself.
        media_type: of a stream.
        comment: the bytes in a stream that tell a client which waits a text, or nothing.
        event: a whole answer as the only event of a stream that has begun.
        status: the status of a response with this one of ours.
    """

    is_last: Callable[[bytes], bool]
    stream_error: Callable[[Mapping[str, object]], bytes]
    envelope: Callable[[Mapping[str, object], str | None], Mapping[str, object]]
    id_header: bytes | None = None
    after_error: bytes = b""
    media_type: bytes = b"text/event-stream"
    comment: Callable[[str], bytes] = lambda text: f": {text}\n\n".encode()
    event: Callable[[bytes], bytes] = lambda body: encode(SseEvent(body.decode("utf-8", "replace")))
    status: Callable[[int], int] = lambda status: status


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


def _ollama(envelope: Mapping[str, object], _request_id: str | None = None) -> Mapping[str, object]:
    error = envelope.get("error")
    known: Mapping[str, object] = error if isinstance(error, Mapping) else {}
    text, code = str(known.get("message", "")), known.get("code")
    said = f"model not found: {text}" if code == _UNKNOWN else text  # clients look for the two words
    return {"error": said, "code": code}


def _ollama_error(error: Mapping[str, object]) -> bytes:
    return line(_ollama({"error": error}))


def line(value: Mapping[str, object]) -> bytes:
    """Return a line of a stream of JSON objects."""
    return written(value) + b"\n"


_UNKNOWN: Final = "model_not_found"
_NO_ROOM: Final = 507
_FAILED: Final = 500

OPENAI: Final = Api(_begins(b"data: [DONE]"), _openai_error, _as_it_is, after_error=_DONE_EVENT)
RESPONSES: Final = Api(
    _begins(b"event: response.completed", b"event: response.incomplete", b"event: response.failed"),
    _responses_error,
    _as_it_is,
)
ANTHROPIC: Final = Api(_begins(b"event: message_stop"), _anthropic_error, _anthropic, b"request-id")
RAW: Final = Api(_is_last_raw, _raw_error, _as_it_is)
"""llama-server's own form, `/completion` and `/infill`: no event follows the last one of the answer."""


def _of_lines(waiting: bytes) -> Api:
    """Return Ollama's API. waiting: what a client gets that waits: a line without text, as there are no comments."""
    return Api(
        _begins(b"data: [DONE]"),
        _ollama_error,
        _ollama,
        media_type=b"application/x-ndjson",
        comment=lambda text: waiting,
        event=lambda body: body + b"\n",
        status=lambda status: _FAILED if status == _NO_ROOM else status,
    )


OLLAMA: Final = _of_lines(line({"response": "", "done": False}))
OLLAMA_CHAT: Final = _of_lines(line({"message": {"role": "assistant", "content": ""}, "done": False}))
