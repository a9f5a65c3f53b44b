"""What the official Python SDKs get from a server: the same calls as those of `node/battery.mjs`, by the same names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anthropic
import openai

MODEL = "talker"
HI: Any = [{"role": "user", "content": "Hi"}]
CALL: Any = [{"role": "user", "content": "call"}]
ENDLESS: Any = [{"role": "user", "content": "endless"}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
RESPONSE_TOOLS: Any = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
MESSAGE_TOOLS: Any = [{"name": "get_weather", "input_schema": SCHEMA}]
STRUCTURED: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}

NAMES = (
    *("chat", "chat_stream", "tools", "tools_stream", "structured", "choices", "completion", "completion_stream"),
    *("embeddings", "embeddings_base64", "response", "response_stream", "response_tools", "models"),
    *("wrong_parameter", "wrong_messages", "abort", "timeout"),
    *("message", "message_stream", "message_tools", "message_count", "message_wrong", "message_abort"),
)
"""Of the calls."""


def results(url: str) -> dict[str, Any]:
    """The answers of a server, by the names of the calls."""
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as ours,
        anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as theirs,
    ):
        calls = {**_openai_calls(ours), **_anthropic_calls(theirs)}
        return {name: json.loads(json.dumps(call())) for name, call in calls.items()}


def _openai_calls(client: openai.OpenAI) -> Mapping[str, Callable[[], Any]]:
    def chat(messages: Any = HI, **more: Any) -> Any:
        made: Any = client.chat.completions.create(model=MODEL, messages=messages, temperature=0.0, **more)
        return _dumped(made, more)

    def completion(**more: Any) -> Any:
        made: Any = client.completions.create(model=MODEL, prompt="Hi", max_tokens=50, **more)
        return _dumped(made, more)

    def response(text: str = "Hi", **more: Any) -> Any:
        made: Any = client.responses.create(model=MODEL, input=text, **more)
        return _dumped(made, more)

    def vectors(kind: Any) -> Any:
        found = client.embeddings.create(model=MODEL, input=["one", "two"], encoding_format=kind)
        return [{"index": one.index, "embedding": one.embedding} for one in found.data]

    return {
        "chat": chat,
        "chat_stream": lambda: chat(stream=True, stream_options={"include_usage": True}),
        "tools": lambda: chat(CALL, tools=TOOLS),
        "tools_stream": lambda: chat(CALL, tools=TOOLS, stream=True),
        "structured": lambda: chat(response_format=STRUCTURED, max_tokens=40),
        "choices": lambda: chat(n=2),
        "completion": completion,
        "completion_stream": lambda: completion(stream=True),
        "embeddings": lambda: vectors("float"),
        "embeddings_base64": lambda: vectors("base64"),
        "response": response,
        "response_stream": lambda: response(stream=True),
        "response_tools": lambda: response("call", tools=RESPONSE_TOOLS),
        "models": lambda: [one.id for one in client.models.list() if one.id == MODEL],
        "wrong_parameter": lambda: _status(lambda: chat(top_p="much")),
        "wrong_messages": lambda: _status(lambda: chat("none")),
        "abort": lambda: _first(client.chat.completions.create(model=MODEL, messages=ENDLESS, stream=True)),
        "timeout": lambda: _status(lambda: chat(ENDLESS, timeout=0.2)),
    }


def _anthropic_calls(client: anthropic.Anthropic) -> Mapping[str, Callable[[], Any]]:
    def message(messages: Any = HI, **more: Any) -> Any:
        made: Any = client.messages.create(model=MODEL, messages=messages, max_tokens=100, **more)
        return _dumped(made, more)

    def count() -> Any:
        return client.messages.count_tokens(model=MODEL, messages=HI).model_dump(mode="json")

    return {
        "message": message,
        "message_stream": lambda: message(stream=True),
        "message_tools": lambda: message(CALL, tools=MESSAGE_TOOLS),
        "message_count": count,
        "message_wrong": lambda: _status(lambda: message([{"role": 5}])),
        "message_abort": lambda: _first(
            client.messages.create(model=MODEL, messages=ENDLESS, max_tokens=100_000, stream=True)
        ),
    }


def _dumped(made: Any, asked: Mapping[str, Any]) -> Any:
    if asked.get("stream"):
        return [event.model_dump(mode="json", exclude_unset=True) for event in made]
    return made.model_dump(mode="json", exclude_unset=True)


def _first(stream: Any) -> Any:
    """The first three events; the stream is left then."""
    events: Iterable[Any] = iter(stream)
    found = [event.model_dump(mode="json", exclude_unset=True) for event, _ in zip(events, range(3), strict=False)]
    stream.close()
    return found


def _status(call: Callable[[], Any]) -> Any:
    """The class of the error and its status."""
    try:
        call()
    except (openai.APIError, anthropic.APIError) as error:
        return {"error": type(error).__name__, "status": getattr(error, "status_code", None)}
    return "no error"
