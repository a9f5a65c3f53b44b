"""The factory's models on a real llama-server: a test gets back exactly the texts it has stated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.plain_server import plain_server
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]
_CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "llamas \\"in\\" Perú 🦙"}}\n</tool_call>'
_BROKEN = '<tool_call>\n{"name": "search", "arguments": {"query": "llamas",}\n</tool_call>'
_EARLIER_CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def test_texts_of_every_kind_are_replayed(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    when = {
        "unicode": "Grüße, 世界! 🦙🏽 — ﷽ ▁ \u200b Ā\U0010ffff",
        "control": "tabs\tnewlines\r\n\n\nNUL\x00bell\x07",
        "tags": "</think> <s> </s> <|im_start|>user <|im_end|> <eos> [INST] <tool_response>",
        "code": 'def f(x: str) -> str:\n    return f"{x!r}\\n" + \'"\'  # {{ jinja }} {% if %}',
        "json": '{"a": [1, 2.5e-3, null, "x\\u00e9"], "b": {}}',
        "spaces": "        many   spaces   ",
        "short": "ok",
        "empty": "",
        "mono": "ha" * 300,
        "again": "Hello, I say this twice.",
        "twice": "Hello, I say this twice.",
    }
    model = scripted_model("Hello, I say this twice.", when=when)
    with plain_server(engine_binary, model) as server:
        for word, text in when.items():
            prompt = f"<|say:word:{word}|>"
            assert server.post("/v1/completions", {"prompt": prompt, "max_tokens": 500})["choices"][0]["text"] == text
        for word in ("unicode", "tags", "code", "json", "mono", "again"):
            assert server.chat(word)["message"]["content"] == when[word]
        assert server.chat("something else")["message"]["content"] == when["twice"]


def test_a_text_for_tools_is_parsed_by_the_engine(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    model = scripted_model("No tools.", tools=f"I look it up.\n{_CALL}", after_tool="Found.")
    with plain_server(engine_binary, model) as server:
        assert server.chat("Hello")["message"]["content"] == "No tools."
        message = server.chat("Hello", tools=_TOOLS)["message"]
        assert message["content"].strip() == "I look it up."
        (call,) = message["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"query": 'llamas "in" Perú 🦙'}
        conversation = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "1", "content": "y"}]
        answer = server.post("/v1/chat/completions", {"messages": conversation, "tools": _TOOLS})
        assert answer["choices"][0]["message"]["content"] == "Found."


def test_the_plain_template_leaves_everything_in_content(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    model = scripted_model("Yes.", think="Hm.", tools=_BROKEN, when={"call": _CALL}, template="plain")
    with plain_server(engine_binary, model) as server:
        assert server.chat("Hello")["message"] == {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."}
        silent = {"role": "assistant", "content": None, "tool_calls": [_EARLIER_CALL]}
        messages = [{"role": "user", "content": "x"}, silent, {"role": "tool", "tool_call_id": "1", "content": "call"}]
        answer = server.post("/v1/chat/completions", {"messages": messages})
        assert answer["choices"][0]["message"]["content"] == _CALL
        for word, text in {"Hello": _BROKEN, "call": _CALL}.items():
            assert server.chat(word, tools=_TOOLS)["message"] == {"role": "assistant", "content": text}
            streamed = server.stream_chat(word, tools=_TOOLS)
            assert "".join(delta.get("content") or "" for delta in streamed) == text


def test_without_chat_parsing_a_call_is_raw_text(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    model = scripted_model(tools=_BROKEN, think="Hm.", when={"call": _CALL})
    with plain_server(engine_binary, model, "--skip-chat-parsing") as server:
        assert server.chat("Hello", tools=_TOOLS)["message"]["content"] == _BROKEN
        assert server.chat("call", tools=_TOOLS)["message"]["content"] == _CALL
        assert server.chat("Hello")["message"]["content"].startswith("<think>\nHm.")


def test_endless_and_context(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    model = scripted_model("tick tock ", endless=True, n_ctx=512)
    with plain_server(engine_binary, model, "--parallel", "1") as server:
        assert server.request("GET", "/props")[1]["default_generation_settings"]["n_ctx"] == 512
        answer = server.post("/v1/completions", {"prompt": "go", "max_tokens": 10_000})["choices"][0]
        assert answer["finish_reason"] == "length"
        assert ("tick tock " * 600).startswith(answer["text"])
        assert len(answer["text"]) > 512
