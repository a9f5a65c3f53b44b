"""Convert a request to `/v1/messages` into one for a chat, as the engine itself would.

Measured on llama-server b11434: these are the fields that it looks at, and this is what it makes of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, TypedDict, cast

from supervisor.core.params.settings import OVERRIDING
from supervisor.core.recovery.typed import Part, Said, SaidCall, Schema

_KEPT: Final = (
    *("model", "stream", "chat_template_kwargs", "reasoning_effort", "logit_bias"),
    *("response_format", "grammar", "json_schema"),
    *(name for name in OVERRIDING if name != "max_tokens"),
)
"""Fields that mean the same in a chat. The engine itself looks at some of them only; clients may use all."""

_MAX_TOKENS: Final = 4096
_BILLING: Final = "x-anthropic-billing-header:"
_STAMP: Final = re.compile(r"cch=.{5};")
"""A stamp that some clients put into the system prompt anew for each request: no prompt would be found in the cache."""


class _Source(TypedDict, total=False):
    """The source of a picture."""

    type: str
    url: str
    media_type: str
    data: str


class _Block(TypedDict, total=False):
    """A block of a message's content, of any type."""

    type: str
    text: str
    thinking: str
    source: _Source
    id: str
    name: str
    input: object
    tool_use_id: str
    content: str | list[_Block]


class _Message(TypedDict, total=False):
    """A message."""

    role: str
    content: str | list[_Block] | None


class _Tool(TypedDict, total=False):
    """A tool."""

    name: str
    description: str
    input_schema: Schema


class _Choice(TypedDict, total=False):
    """The choice among the tools."""

    type: str
    name: str
    disable_parallel_tool_use: bool


class _Thinking(TypedDict, total=False):
    """The wish for reasoning, and its budget."""

    type: str
    budget_tokens: int


class _Asked(TypedDict, total=False):
    """The request. One of another shape raises what Python raises, and is for the engine to judge."""

    messages: list[_Message]
    system: str | list[_Block]
    max_tokens: int
    stop_sequences: list[str]
    thinking: _Thinking
    metadata: Mapping[str, str]
    tools: list[_Tool]
    tool_choice: _Choice


def chat_of_messages(request: Mapping[str, object]) -> dict[str, object] | None:
    """Return the request for a chat; None where there is something in it that only the engine can judge."""
    asked = cast(_Asked, request)
    messages = asked.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
        return None
    try:
        said = [*_system(asked.get("system")), *(out for one in messages for out in _message(one))]
        chat = {key: request[key] for key in _KEPT if key in request}
        chat |= {"messages": said, "max_tokens": asked.get("max_tokens", _MAX_TOKENS)}
        if "stop_sequences" in asked:
            chat["stop"] = asked["stop_sequences"]
        return {**chat, **_thinking(asked), **_tools(asked)}
    except (AttributeError, KeyError, TypeError):
        return None


def _system(system: str | list[_Block] | None) -> list[Said]:
    if isinstance(system, str):
        return [{"role": "system", "content": _unstamped(system)}]
    if not isinstance(system, list):
        return []
    text = "".join(_unstamped(block.get("text", "")) for block in system if block.get("type") == "text")
    return [{"role": "system", "content": text}]


def _unstamped(text: str) -> str:
    return _STAMP.sub("cch=fffff;", text, count=1) if text.startswith(_BILLING) else text


def _message(message: _Message) -> list[Said]:
    """Return a message, and the results of calls that stand in it, each as a message of its own."""
    blocks = message.get("content")
    if not isinstance(blocks, list):
        return [] if blocks is None and message.get("role") == "assistant" else [cast(Said, {**message})]
    content: list[Part] = []
    calls: list[SaidCall] = []
    results: list[Said] = []
    thoughts = ""
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            content.append({"type": "text", "text": block["text"]})
        elif kind == "image":
            content += _image(block["source"])
        elif kind == "thinking":
            thoughts += block.get("thinking", "")
        elif kind == "tool_use":
            calls.append(_call(block))
        elif kind == "tool_result":
            results.append(_result(block))
    said: list[Said] = []
    if content or calls or thoughts:
        more: Said = {"tool_calls": calls} if calls else {}
        if thoughts:
            more["reasoning_content"] = thoughts
        said.append({"role": message.get("role"), "content": content or "", **more})
    return [*said, *results]


def _call(block: _Block) -> SaidCall:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return {
        "id": block.get("id", ""),
        "type": "function",
        "function": {"name": block.get("name", ""), "arguments": arguments},
    }


def _result(block: _Block) -> Said:
    given = block.get("content")
    content: str | list[Part] = given if isinstance(given, str) else ""
    if isinstance(given, list):
        parts = [part for one in given for part in _parts(one)]
        texts = all(part["type"] == "text" for part in parts)
        content = "".join(part["text"] for part in parts) if texts else parts
    return {"role": "tool", "tool_call_id": block.get("tool_use_id", ""), "content": content}


def _parts(block: _Block) -> list[Part]:
    if block.get("type") == "text":
        return [{"type": "text", "text": block.get("text", "")}]
    return _image(block["source"]) if block.get("type") == "image" else []


def _image(source: _Source) -> list[Part]:
    """Return a picture as a part; of a source of another type, as the engine, nothing."""
    kind, url = source.get("type"), None
    if kind == "base64":
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    elif kind == "url":
        url = source.get("url")
    return [{"type": "image_url", "image_url": {"url": url}}] if url else []


def _thinking(asked: _Asked) -> dict[str, object]:
    thinking: _Thinking = asked.get("thinking") or {}
    found: dict[str, object] = (
        {"thinking_budget_tokens": thinking.get("budget_tokens", 10000)} if thinking.get("type") == "enabled" else {}
    )
    user = (asked.get("metadata") or {}).get("user_id")
    return {**found, "__metadata_user_id": user} if user else found


def _tools(asked: _Asked) -> dict[str, object]:
    """Return the tools, and the choice among them."""
    tools = [_tool(one) for one in asked.get("tools") or ()]
    choice: _Choice = asked.get("tool_choice") or {}
    named = {"type": "function", "function": {"name": choice.get("name")}}
    kinds: dict[str, object] = {"auto": "auto", "any": "required", "tool": named, "none": "none"}
    found: dict[str, object] = {"tools": tools} if tools else {}
    kind = choice.get("type", "")
    if kind in kinds:
        found["tool_choice"] = kinds[kind]
    if choice.get("disable_parallel_tool_use"):
        found["parallel_tool_calls"] = False
    return found


def _tool(tool: _Tool) -> dict[str, object]:
    described = {"name": tool.get("name", ""), "description": tool.get("description", "")}
    return {"type": "function", "function": {**described, "parameters": tool.get("input_schema") or {}}}
