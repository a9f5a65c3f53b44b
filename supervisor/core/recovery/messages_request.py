"""A request to `/v1/messages` as a request for a chat: what the engine itself would make of it.

Measured on llama-server b11434: these are the fields that it looks at, and this is what it makes of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

Message = dict[str, Any]

_KEPT: Final = ("model", "temperature", "top_p", "top_k", "stream", "chat_template_kwargs")
_MAX_TOKENS: Final = 4096
_BILLING: Final = "x-anthropic-billing-header:"
_STAMP: Final = re.compile(r"cch=.{5};")
"""A stamp that some clients put into the system prompt anew for each request: no prompt would be found in the cache."""


def chat_of_messages(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request for a chat; None where there is something in it that only the engine can judge."""
    messages = asked.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
        return None
    try:
        said = [*_system(asked.get("system")), *(out for one in messages for out in _message(one))]
        chat: dict[str, Any] = {key: asked[key] for key in _KEPT if key in asked}
        chat |= {"messages": said, "max_tokens": asked.get("max_tokens", _MAX_TOKENS)}
        if "stop_sequences" in asked:
            chat["stop"] = asked["stop_sequences"]
        return {**chat, **_thinking(asked), **_tools(asked)}
    except (AttributeError, KeyError, TypeError):
        return None


def _system(system: object) -> list[Message]:
    if isinstance(system, str):
        return [{"role": "system", "content": _unstamped(system)}]
    if not isinstance(system, list):
        return []
    text = "".join(_unstamped(block.get("text", "")) for block in system if block.get("type") == "text")
    return [{"role": "system", "content": text}]


def _unstamped(text: str) -> str:
    return _STAMP.sub("cch=fffff;", text, count=1) if text.startswith(_BILLING) else text


def _message(message: Mapping[str, Any]) -> list[Message]:
    """A message, and the results of calls that stand in it, each as a message of its own."""
    blocks = message.get("content")
    if not isinstance(blocks, list):
        return [] if blocks is None and message.get("role") == "assistant" else [dict(message)]
    content: list[Message] = []
    calls: list[Message] = []
    results: list[Message] = []
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
    said: list[Message] = []
    if content or calls or thoughts:
        more: Message = {"tool_calls": calls} if calls else {}
        more |= {"reasoning_content": thoughts} if thoughts else {}
        said.append({"role": message.get("role"), "content": content or "", **more})
    return [*said, *results]


def _call(block: Mapping[str, Any]) -> Message:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": block.get("name", ""), "arguments": arguments}
    return {"id": block.get("id", ""), "type": "function", "function": function}


def _result(block: Mapping[str, Any]) -> Message:
    given = block.get("content")
    content: Any = given if isinstance(given, str) else ""
    if isinstance(given, list):
        parts = [part for one in given for part in _parts(one)]
        texts = all(part["type"] == "text" for part in parts)
        content = "".join(part["text"] for part in parts) if texts else parts
    return {"role": "tool", "tool_call_id": block.get("tool_use_id", ""), "content": content}


def _parts(block: Mapping[str, Any]) -> list[Message]:
    if block.get("type") == "text":
        return [{"type": "text", "text": block.get("text", "")}]
    return _image(block["source"]) if block.get("type") == "image" else []


def _image(source: Mapping[str, Any]) -> list[Message]:
    url = source.get("url")
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return [{"type": "image_url", "image_url": {"url": url}}] if url else []


def _thinking(asked: Mapping[str, Any]) -> dict[str, Any]:
    thinking = asked.get("thinking") or {}
    found = (
        {"thinking_budget_tokens": thinking.get("budget_tokens", 10000)} if thinking.get("type") == "enabled" else {}
    )
    user = (asked.get("metadata") or {}).get("user_id")
    return {**found, "__metadata_user_id": user} if user else found


def _tools(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The tools, and the choice among them."""
    tools = [_tool(one) for one in asked.get("tools") or ()]
    choice = asked.get("tool_choice") or {}
    named: Any = {"type": "function", "function": {"name": choice.get("name")}}
    kinds: dict[str, Any] = {"auto": "auto", "any": "required", "tool": named, "none": "none"}
    found: dict[str, Any] = {"tools": tools} if tools else {}
    if choice.get("type") in kinds:
        found["tool_choice"] = kinds[choice["type"]]
    if choice.get("disable_parallel_tool_use"):
        found["parallel_tool_calls"] = False
    return found


def _tool(tool: Mapping[str, Any]) -> Message:
    described = {"name": tool.get("name", ""), "description": tool.get("description", "")}
    return {"type": "function", "function": {**described, "parameters": tool.get("input_schema") or {}}}
