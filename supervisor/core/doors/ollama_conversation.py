"""A conversation as Ollama's clients have it, turned into a chat's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from supervisor.core.doors.turned import Head
from supervisor.errors import InvalidRequest

_SNIFFED: Final = 24  # characters in base64 of which the kind of a medium shows
_IMAGES: Final = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp", "Qk": "bmp"}
_SOUNDS: Final = {"SUQz": "mp3", "//u": "mp3", "//O": "mp3", "//I": "mp3", "ZkxhQ": "flac"}
_WAVE: Final = "QVZF"  # the base64 of `AVE` in the twelve bytes with which a RIFF file begins

Message = dict[str, object]


def conversation(messages: list[Any], head: Head) -> list[Message]:
    """Return the messages of a chat. Raise InvalidRequest for what is no message."""
    ids = _Ids()
    out: list[Message] = []
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequest("`messages` must be a list of objects.", param=f"messages.{number}")
        out.append(_message(message, head, ids))
    return out


def media_parts(images: object, head: Head) -> list[dict[str, object]]:
    """Return the parts of a content for `images`, base64 each; sound is among them, too. Raise InvalidRequest."""
    if not isinstance(images, list) or not all(isinstance(one, str) for one in images):
        raise InvalidRequest("`images` must be a list of texts, each a medium in base64.", param="images")
    return [_part(one, head(one, _SNIFFED)) for one in images]


def _part(data: str, begins: str) -> dict[str, object]:
    sound = next((kind for start, kind in _SOUNDS.items() if begins.startswith(start)), None)
    if begins.startswith("UklGR") and begins[12:16] == _WAVE:
        sound = "wav"
    if sound is not None:
        return {"type": "input_audio", "input_audio": {"data": data, "format": sound}}
    kind = next((kind for start, kind in _IMAGES.items() if begins.startswith(start)), "jpeg")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


class _Ids:
    """The ids of calls, which Ollama's clients may leave out: a result belongs to the oldest call of its name."""

    def __init__(self) -> None:
        self._made = 0
        self._open: list[tuple[str, str]] = []  # id and name of calls without a result

    def of_call(self, call: Mapping[str, Any], name: str) -> str:
        given = call.get("id")
        self._made += 1
        found = given if isinstance(given, str) and given else f"call_{self._made}"
        self._open.append((found, name))
        return found

    def of_result(self, message: Mapping[str, Any], name: object) -> str | None:
        given = message.get("tool_call_id")
        if isinstance(given, str) and given:
            self._open = [one for one in self._open if one[0] != given]
            return given
        found = next((one for one in self._open if one[1] == name), self._open[0] if self._open else None)
        if found is None:
            return None
        self._open.remove(found)
        return found[0]


def _message(message: Mapping[str, Any], head: Head, ids: _Ids) -> Message:
    out: Message = {"role": message.get("role", "user"), "content": _content(message, head)}
    if isinstance(message.get("thinking"), str) and message["thinking"]:
        out["reasoning_content"] = message["thinking"]
    if calls := message.get("tool_calls"):
        if not isinstance(calls, list):
            raise InvalidRequest("`tool_calls` must be a list.", param="messages.tool_calls")
        out["tool_calls"] = [_call(one, ids) for one in calls]
    if out["role"] == "tool":
        name = message.get("tool_name") or message.get("name")
        found = ids.of_result(message, name)
        out |= {**({} if found is None else {"tool_call_id": found}), **({"name": name} if name else {})}
    return out


def _content(message: Mapping[str, Any], head: Head) -> object:
    text = message.get("content")
    text = "" if text is None else text
    if not message.get("images"):
        return text
    said = [{"type": "text", "text": text}] if text else []
    return [*media_parts(message["images"], head), *said]


def _call(call: object, ids: _Ids) -> Message:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidRequest("A call in `tool_calls` must have a `function`.", param="messages.tool_calls")
    name, arguments = str(function.get("name", "")), function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": ids.of_call(call, name), "type": "function", "function": {"name": name, "arguments": text}}
