"""Mend calls of earlier turns in a request: arguments that no engine could read are mended, or emptied.

The engine parses the arguments of every earlier call; one that is no JSON object fails the request, and every later one
of the same conversation. Mending takes time, so that a request has a limit of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.recovery.arguments import is_object
from supervisor.core.toolcalls.jsonscan import read_json
from supervisor.core.toolcalls.jsontext import loads
from supervisor.core.toolcalls.source import finished

_MOST: Final = 1 << 13
"""Of what takes time in broken arguments, so many are mended in one request; what is broken beyond that is emptied."""

_SLOW: Final = (",", ":", "\\", "\n", "{", "}", "[", "]", '"', "'")


def mended_messages(messages: object) -> list[object] | None:
    """Return the messages with arguments that can be read; None where all can."""
    if not isinstance(messages, list):
        return None
    mender = _Mender()
    mended = [_message(message, mender) for message in messages]
    return mended if any(new is not old for new, old in zip(mended, messages, strict=True)) else None


def mended_input(asked: Mapping[str, object]) -> dict[str, object]:
    """Return the same for the items of `/v1/responses`: the field `input` where it has to change."""
    items = asked.get("input")
    if not isinstance(items, list):
        return {}
    mender = _Mender()
    mended = [_item(item, mender) for item in items]
    return {"input": mended} if any(new is not old for new, old in zip(mended, items, strict=True)) else {}


def mended_arguments(text: str) -> str:
    """Return JSON text of an object: the text itself, the text mended, or `{}`."""
    if is_object(text):
        return text
    for _ in range(2):  # an object, or a string that holds one
        found = finished(read_json(text)) if text.strip() else None
        if found is None:
            return "{}"
        if is_object(found):
            return found
        value = loads(found)
        if not isinstance(value, str):
            return "{}"
        text = value
    return "{}"


class _Mender:
    """The mender of one request's arguments."""

    def __init__(self) -> None:
        self._left = _MOST

    def mended(self, text: str) -> str:
        """Mend one text; see `mended_arguments`."""
        if is_object(text):
            return text
        self._left -= sum(map(text.count, _SLOW))
        return mended_arguments(text) if self._left >= 0 else "{}"


def _item(item: object, mender: _Mender) -> object:
    if not isinstance(item, Mapping) or item.get("type") != "function_call":
        return item
    text = item.get("arguments")
    mended = mender.mended(text) if isinstance(text, str) else text
    return item if mended == text else {**item, "arguments": mended}


def _message(message: object, mender: _Mender) -> object:
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(calls, list):
        return message
    mended = [_call(call, mender) for call in calls]
    return {**message, "tool_calls": mended} if any(a is not b for a, b in zip(mended, calls, strict=True)) else message


def _call(call: object, mender: _Mender) -> object:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    text = "{}" if arguments is None else arguments
    if not isinstance(text, str):
        return call
    mended = mender.mended(text)
    return call if mended == arguments else {**call, "function": {**function, "arguments": mended}}
