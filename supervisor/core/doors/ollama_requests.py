"""Requests of Ollama's API, turned into an engine's.

Read from Ollama 0.33 (`server/routes.go`, `api/types.go`), which itself drives llama-server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from supervisor.core.doors.durations import keep_alive
from supervisor.core.doors.ollama_conversation import conversation, media_parts
from supervisor.core.doors.ollama_lines import ChatLines, GenerateLines, RawLines, ended
from supervisor.core.doors.ollama_vectors import vector, vectors
from supervisor.core.doors.turned import Changed, Continued, Head, Spoken, Turned, Wishes
from supervisor.core.params.fates import Fields
from supervisor.core.params.kinds import FLAG, LIST, OBJECT, TEXT, Either, Kind, whole
from supervisor.core.params.ollama import DEFAULTS, from_options
from supervisor.errors import InvalidRequest

CHAT_PATH: Final = "/v1/chat/completions"
_RAW_PATH: Final = "/completion"
_INFILL_PATH: Final = "/infill"
_VECTOR_PATH: Final = "/v1/embeddings"

_LEVELS: Final = ("low", "medium", "high", "max")
_KINDS: Final[Mapping[str, Kind]] = {
    "stream": FLAG,
    "raw": FLAG,
    "truncate": FLAG,
    "shift": FLAG,
    "logprobs": FLAG,
    "top_logprobs": whole(0, 20),
    "dimensions": whole(0),
    "format": Either((TEXT, OBJECT)),
    "think": Either((FLAG, TEXT)),
    "prompt": TEXT,
    "suffix": TEXT,
    "system": TEXT,
    "template": TEXT,
    "images": LIST,
    "messages": LIST,
    "tools": LIST,
    "context": LIST,
}


def chat(asked: Mapping[str, Any], head: Head) -> Turned:
    """Turn a request to `/api/chat`. Raise InvalidRequest."""
    _check(asked)
    sampling, wishes = _options(asked)
    messages = asked.get("messages") or []
    tools = {"tools": asked["tools"]} if asked.get("tools") else {}
    fields = {**_shared(asked, sampling), "messages": conversation(messages, head), **tools}
    only = None if messages else partial(ended, ChatLines, _reason(wishes))
    shortens = asked.get("truncate") is not False
    return Turned(CHAT_PATH, fields, asked.get("model"), Spoken(ChatLines), wishes, DEFAULTS, only, shortens)


def generate(asked: Mapping[str, Any], head: Head) -> Turned:
    """Turn a request to `/api/generate`. Raise InvalidRequest."""
    _check(asked)
    _refuse(asked, "template", "The template of the model's file is used; set `chat_template` for the model.")
    _refuse(asked, "context", "Send the conversation to /api/chat instead.")
    sampling, wishes = _options(asked)
    prompt, images = asked.get("prompt") or "", asked.get("images") or []
    only = None if prompt or images or asked.get("suffix") else partial(ended, GenerateLines, _reason(wishes))
    shared = _shared(asked, sampling)
    model, told = asked.get("model"), (wishes, DEFAULTS, only)
    if asked.get("suffix"):
        parts = {"input_prefix": prompt, "input_suffix": asked["suffix"], "prompt": ""}
        return Turned(_INFILL_PATH, {**_raw(asked, shared), **parts}, model, Continued(RawLines), *told)
    if asked.get("raw"):
        _refuse(asked, "system", "With `raw` it belongs into the prompt.")
        _refuse(asked, "images", "With `raw` there are none.")
        return Turned(_RAW_PATH, {**_raw(asked, shared), "prompt": prompt}, model, Continued(RawLines), *told)
    system = [{"role": "system", "content": asked["system"]}] if asked.get("system") else []
    parts_or_text = [*media_parts(images, head), {"type": "text", "text": prompt}] if images else prompt
    messages = [*system, {"role": "user", "content": parts_or_text}]
    return Turned(CHAT_PATH, {**shared, "messages": messages}, model, Spoken(GenerateLines), *told)


def embed(asked: Mapping[str, Any], head: Head) -> Turned:
    """Turn a request to `/api/embed`. Raise InvalidRequest."""
    _check(asked)
    _, wishes = _options(asked)
    given = asked.get("input")
    texts = [given] if isinstance(given, str) else given
    if texts is not None and (not isinstance(texts, list) or not all(isinstance(one, str) for one in texts)):
        raise InvalidRequest("`input` must be a text or a list of texts.", param="input")
    only = None if texts and texts != [""] else partial(vectors, None, {})
    change = partial(vectors, asked.get("dimensions") or None)
    return Turned(_VECTOR_PATH, {"input": texts}, asked.get("model"), Changed(change), wishes, only=only)


def embeddings(asked: Mapping[str, Any], head: Head) -> Turned:
    """Turn a request to `/api/embeddings`, whose vector is as the model gives it. Raise InvalidRequest."""
    _check(asked)
    _, wishes = _options(asked)
    prompt = asked.get("prompt") or ""
    only = None if prompt else partial(vector, {})
    fields = {"input": prompt, "embd_normalize": -1}
    return Turned(_VECTOR_PATH, fields, asked.get("model"), Changed(vector), wishes, only=only)


def _check(asked: Mapping[str, Any]) -> None:
    for name, kind in _KINDS.items():
        value = asked.get(name)
        if value is not None and not kind.admits(value):
            raise InvalidRequest(f"`{name}` must be {kind.text}.", param=name)


def _refuse(asked: Mapping[str, Any], name: str, instead: str) -> None:
    if asked.get(name):
        raise InvalidRequest(f"`{name}` cannot be done here. {instead}", param=name)


def _options(asked: Mapping[str, Any]) -> tuple[Fields, Wishes]:
    """Return the parameters of `options`, and what is wished of the model."""
    fields, context = from_options(asked.get("options"))
    return fields, Wishes(keep_alive(asked.get("keep_alive")), context or None)


def _reason(wishes: Wishes) -> str:
    return "unload" if wishes.keep == 0 else "load"


def _shared(asked: Mapping[str, Any], sampling: Fields) -> dict[str, object]:
    """Return the fields of a chat that `/api/chat` and `/api/generate` have alike."""
    fields: dict[str, object] = {"stream": asked.get("stream") is not False, **sampling}
    fields |= _format(asked.get("format"))
    fields |= _thinking(asked.get("think"))
    if asked.get("logprobs"):
        fields |= {"logprobs": True, "top_logprobs": max(1, int(asked.get("top_logprobs") or 0))}
    return fields


def _raw(asked: Mapping[str, Any], shared: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a completion in the engine's own form."""
    fields = {name: value for name, value in shared.items() if name not in _OF_CHAT}
    shape = asked.get("format")
    if shape:
        fields["json_schema"] = shape if isinstance(shape, Mapping) else {"type": "object"}
    if asked.get("logprobs"):
        fields["n_probs"] = max(1, int(asked.get("top_logprobs") or 0))
    return fields


_OF_CHAT: Final = frozenset({"response_format", "enable_thinking", "reasoning_effort", "logprobs", "top_logprobs"})


def _format(value: object) -> dict[str, object]:
    if not value:
        return {}
    if isinstance(value, Mapping):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": value}}}
    if value == "json":
        return {"response_format": {"type": "json_object"}}
    raise InvalidRequest('`format` must be "json" or a JSON schema.', param="format")


def _thinking(value: object) -> dict[str, object]:
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"enable_thinking": value}
    if value not in _LEVELS:
        raise InvalidRequest(f"`think` must be true, false or one of {', '.join(_LEVELS)}.", param="think")
    return {"enable_thinking": True, "reasoning_effort": value}
