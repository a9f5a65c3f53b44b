"""Translate the engine's error objects into ours: the same with a stable `code` in place of the status number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypedDict

from supervisor.core.text.foreignjson import NotJson, parse

_CODES = {
    "exceed_context_size_error": "context_length_exceeded",  # OpenAI's own code
    "invalid_request_error": "invalid_request",
    "not_supported_error": "not_supported_by_engine",
    "unavailable_error": "engine_busy",
    "not_found_error": "route_not_found",
}
_OTHER = "engine_error"
_BUSY = "engine_busy"

_START_WITH = re.compile(r"[Ss]tart it with `--([a-z-]{1,64})`")
_ADVICE = {
    "embeddings": "Set `embeddings: on` for this model, or load it with `supervisor load MODEL --embeddings on`",
    "reranking": "Set `reranking: true` for this model, or load it with `supervisor load MODEL --set reranking=true`",
    "mmproj": "Put the model's projector beside its file, or name it with `mmproj` in the configuration",
    "slot-save-path": "Set `slot_save_path` for this model in the configuration",
}
"""Advice on an option that the engine asks for, as its users do not start it themselves."""
_OTHER_ADVICE = "Add `--{}` to the model's `extra_args` in the configuration"


class Envelope(TypedDict):
    """An error in OpenAI's form."""

    error: Mapping[str, object]


def translate(error: Mapping[str, object], status: int = 500) -> tuple[int, Envelope]:
    """Return HTTP status and envelope for an error object of the engine.

    Args:
        error: the engine's `{"code": status, "message", "type", …}`; its further fields are kept.
        status: the status for an object that names none.
    """
    named = error.get("code")
    found = named if isinstance(named, int) and 400 <= named <= 599 else status
    kind = error.get("type", "server_error")
    message = _advised(error.get("message")) or "The engine failed without a reason; its log may have one."
    code = _CODES.get(str(kind), _OTHER)
    return found, {"error": {"param": None, **error, "message": message, "type": kind, "code": code}}


def may_pass(status: int, envelope: Envelope) -> bool:
    """Return whether the same request may succeed a little later. If not, client libraries must not repeat it."""
    return status < 500 or status == 503 or envelope["error"]["code"] in {_BUSY, _OTHER}


def _advised(message: object) -> str:
    """Return the engine's sentence, with advice for users of the supervisor in place of an option of its command line.

    What stands before the option in the same sentence goes with it. Takes linear time: engines quote their clients.
    """
    text, done, parts = message if isinstance(message, str) else "", 0, []
    for found in _START_WITH.finditer(text):
        begin = found.start()
        if text.endswith(", ", done, begin):
            begin = max(done, text.rfind(".", done, begin) + 1)
        parts += [text[done:begin], f" {_ADVICE.get(found[1], _OTHER_ADVICE.format(found[1]))}"]
        done = found.end()
    return "".join((*parts, text[done:])).replace(".  ", ". ") if parts else text


def error_in(body: bytes) -> Mapping[str, object]:
    """Return the error object of an error response; make one of its text where there is none."""
    try:
        found = parse(body)["error"]
    except (NotJson, LookupError, TypeError):
        found = None
    return found if isinstance(found, dict) else {"message": body.decode("utf-8", "replace")[:500]}
