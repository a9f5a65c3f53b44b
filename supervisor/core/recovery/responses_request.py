"""Convert a request to `/v1/responses` into one for a chat, as the engine itself would.

Measured on llama-server b11434: these are the items that it knows, and this is what it makes of them; all fields that a
chat has, too, mean there what they mean here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn, TypedDict, cast

from supervisor.core.recovery.shapes import mapping
from supervisor.core.recovery.typed import Part, Said, SaidCall, SaidFunction

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


class _Content(TypedDict, total=False):
    """A part of an item's content, of any type."""

    type: str
    text: str
    refusal: str
    image_url: str


class _Item(TypedDict, total=False):
    """An item of the input, of any type."""

    type: str
    role: str
    content: str | list[_Content]
    name: str
    arguments: str
    call_id: str
    output: str | list[_Content]


class _Asked(TypedDict, total=False):
    """The request. One of another shape raises what Python raises, and is for the engine to judge."""

    input: str | list[_Item]
    instructions: str
    tools: list[Mapping[str, object]]
    reasoning: Mapping[str, object]


class _Unknown(Exception):
    """Something that only the engine can judge."""


def chat_of_responses(request: Mapping[str, object]) -> dict[str, object] | None:
    """Return the request for a chat; None where there is something in it that only the engine can judge."""
    if request.get("previous_response_id"):
        return None
    asked = cast(_Asked, request)
    try:
        messages = _messages(asked["input"])
        tools = [_tool(one) for one in asked.get("tools") or () if one.get("type") == "function"]
    except (AttributeError, KeyError, TypeError, _Unknown):
        return None
    if asked.get("instructions") is not None:
        messages.insert(0, {"role": "system", "content": asked["instructions"]})
    chat = {key: value for key, value in request.items() if key not in _OWN}
    chat["messages"] = messages
    if tools:
        chat["tools"] = tools
    choice = request.get("tool_choice")
    if isinstance(choice, Mapping):
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    if choice is not None:
        chat["tool_choice"] = choice
    if request.get("max_output_tokens") is not None:
        chat["max_tokens"] = request["max_output_tokens"]
    effort = mapping(asked.get("reasoning")).get("effort")
    return {**chat, "reasoning_effort": effort} if effort is not None else chat


def _messages(given: object) -> list[Said]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[Said] = []
    for item in given if isinstance(given, list) else _refused():
        _add(messages, item)
    return [message if message["content"] else {**message, "content": None} for message in messages]


def _add(messages: list[Said], item: _Item) -> None:
    """Add an item. What an assistant said, thought and called in a row is one message."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "message" and role in _ASKERS:
        messages.append({"role": role, "content": _content(item["content"])})
    elif kind == "message" and role == "assistant":
        cast(list[Part], _assistant(messages)["content"]).extend(_content(item["content"]))
    elif kind == "function_call":
        into = _assistant(messages)
        into.setdefault("tool_calls", []).append(_call(item))
    elif kind == "function_call_output":
        output = item["output"]
        content = output if isinstance(output, str) else _content(output)
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind == "reasoning":
        thoughts = "".join(part["text"] for part in cast(list[_Content], item.get("content") or ()))
        if thoughts:
            _assistant(messages)["reasoning_content"] = thoughts
    else:
        _refused()


def _call(item: _Item) -> SaidCall:
    function: SaidFunction = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _assistant(messages: list[Said]) -> Said:
    """Return the assistant's message at the end."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    return messages[-1]


def _content(content: object) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part) for part in content] if isinstance(content, list) else _refused()


def _part(part: _Content) -> Part:
    kind = part.get("type")
    if kind in {"input_text", "output_text", "text"}:
        return {"type": "text", "text": part["text"]}
    if kind == "refusal":
        return {"type": "text", "text": part["refusal"]}
    if kind == "input_image" and part.get("image_url"):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return _refused()


def _tool(tool: Mapping[str, object]) -> dict[str, object]:
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _refused() -> NoReturn:
    raise _Unknown
