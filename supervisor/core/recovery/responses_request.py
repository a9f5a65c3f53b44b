"""A request to `/v1/responses` as a request for a chat: what the engine itself would make of it.

Measured on llama-server b11434: these are the items that it knows, and this is what it makes of them; all fields that a
chat has, too, mean there what they mean here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from supervisor.core.recovery.shapes import mapping

Message = dict[str, Any]

_OWN: Final = frozenset({
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "max_output_tokens",
    "reasoning",
    "stream_options",
})
_ASKERS: Final = frozenset({"user", "system", "developer"})


class _Unknown(Exception):
    """Something that only the engine can judge."""


def chat_of_responses(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request for a chat; None where there is something in it that only the engine can judge."""
    if asked.get("previous_response_id"):
        return None
    try:
        messages = _messages(asked["input"])
        tools = [_tool(one) for one in asked.get("tools") or () if one.get("type") == "function"]
    except (AttributeError, KeyError, TypeError, _Unknown):
        return None
    if asked.get("instructions") is not None:
        messages.insert(0, {"role": "system", "content": asked["instructions"]})
    chat = {key: value for key, value in asked.items() if key not in _OWN}
    chat["messages"] = messages
    if tools:
        chat["tools"] = tools
    choice = asked.get("tool_choice")
    if isinstance(choice, Mapping):
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    if choice is not None:
        chat["tool_choice"] = choice
    if asked.get("max_output_tokens") is not None:
        chat["max_tokens"] = asked["max_output_tokens"]
    effort = mapping(asked.get("reasoning")).get("effort")
    return {**chat, "reasoning_effort": effort} if effort is not None else chat


def _messages(given: object) -> list[Message]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[Message] = []
    for item in given if isinstance(given, list) else _refused():
        _add(messages, item)
    return [message if message["content"] else {**message, "content": None} for message in messages]


def _add(messages: list[Message], item: Mapping[str, Any]) -> None:
    """Add an item; what an assistant said, thought and called in a row is one message."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "message" and role in _ASKERS:
        messages.append({"role": role, "content": _content(item["content"])})
    elif kind == "message" and role == "assistant":
        _assistant(messages)["content"].extend(_content(item["content"]))
    elif kind == "function_call":
        into = _assistant(messages)
        function = {"name": item["name"], "arguments": item["arguments"]}
        into.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})
    elif kind == "function_call_output":
        output = item["output"]
        content = output if isinstance(output, str) else _content(output)
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind == "reasoning":
        thoughts = "".join(part["text"] for part in item.get("content") or ())
        if thoughts:
            _assistant(messages)["reasoning_content"] = thoughts
    else:
        _refused()


def _assistant(messages: list[Message]) -> Message:
    """The assistant's message at the end."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    return messages[-1]


def _content(content: object) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part) for part in content] if isinstance(content, list) else _refused()


def _part(part: Mapping[str, Any]) -> Message:
    kind = part.get("type")
    if kind in {"input_text", "output_text", "text"}:
        return {"type": "text", "text": part["text"]}
    if kind == "refusal":
        return {"type": "text", "text": part["refusal"]}
    if kind == "input_image" and part.get("image_url"):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return _refused()


def _tool(tool: Mapping[str, Any]) -> Message:
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _refused() -> NoReturn:
    raise _Unknown
