"""A conversation as Ollama's clients have it, turned into a chat's."""

from __future__ import annotations

import json
from collections import deque
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
    ids = CallIds()
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


class CallIds:
    """The ids of calls, which Ollama's clients may leave out: a result belongs to the oldest call of its name.

    Where no call has the name, to the oldest of all. The time that it takes grows with the number of calls alone.
    """

    def __init__(self) -> None:
        self._made = 0
        self._open: dict[int, str] = {}  # ids of the calls without a result, by their numbers
        self._order: deque[int] = deque()  # of all calls; those that have a result are dropped when they are met
        self._named: dict[str, deque[int]] = {}
        self._known: dict[str, list[int]] = {}

    def of_call(self, call: Mapping[str, Any], name: str) -> str:
        """Return the id of a call."""
        given = call.get("id")
        self._made += 1
        found = given if isinstance(given, str) and given else f"call_{self._made}"
        self._open[self._made] = found
        self._order.append(self._made)
        self._named.setdefault(name, deque()).append(self._made)
        self._known.setdefault(found, []).append(self._made)
        return found

    def of_result(self, message: Mapping[str, Any], name: object) -> str | None:
        """Return the id of the call that a result belongs to; None where there is none."""
        given = message.get("tool_call_id")
        if isinstance(given, str) and given:
            for number in self._known.pop(given, ()):
                self._open.pop(number, None)
            return given
        of_name = self._named.get(name) if isinstance(name, str) else None
        oldest = self._oldest(of_name) if of_name else None
        oldest = self._oldest(self._order) if oldest is None else oldest
        return None if oldest is None else self._open.pop(oldest)

    def _oldest(self, numbers: deque[int]) -> int | None:
        while numbers and numbers[0] not in self._open:
            numbers.popleft()
        return numbers[0] if numbers else None


def _message(message: Mapping[str, Any], head: Head, ids: CallIds) -> Message:
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


def _call(call: object, ids: CallIds) -> Message:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidRequest("A call in `tool_calls` must have a `function`.", param="messages.tool_calls")
    name, arguments = str(function.get("name", "")), function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": ids.of_call(call, name), "type": "function", "function": {"name": name, "arguments": text}}
