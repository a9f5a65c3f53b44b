"""The official client against the daemon and a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.api.conftest import HELLO, REASONED
from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.engine

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def client(daemon: RunningDaemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0) as found:
        yield found


def asking(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def test_streamed_chat(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="talker", messages=asking("Hi"), stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO
    assert [chunk.choices[0].delta.role for chunk in chunks].count("assistant") == 1
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert not any("prompt_progress" in chunk.model_dump_json() for chunk in chunks)


def test_streamed_chat_with_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="talker", messages=asking("Hi"), stream=True, stream_options={"include_usage": True}
    )
    usage = [chunk.usage for chunk in stream if chunk.usage]
    assert len(usage) == 1
    assert usage[0].completion_tokens > 3


def test_chat_in_one_piece(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="parrot", messages=asking("Hi"))
    assert answer.choices[0].message.content == HELLO
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.object == "chat.completion"


def test_reasoning_is_told_apart(client: openai.OpenAI) -> None:
    message = client.chat.completions.create(model="talker", messages=asking("think")).choices[0].message
    assert message.content == REASONED
    assert (message.model_extra or {})["reasoning_content"].strip() == "Let me ponder."


def test_tool_call_streamed_and_in_one_piece(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="talker", messages=asking("call"), tools=[WEATHER])
    calls = whole.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert (calls[0].function.name, calls[0].function.arguments) == ("get_weather", '{"city": "Paris"}')
    assert whole.choices[0].finish_reason == "tool_calls"

    stream = client.chat.completions.create(model="talker", messages=asking("call"), tools=[WEATHER], stream=True)
    parts = [call.function for chunk in stream for call in chunk.choices[0].delta.tool_calls or [] if call.function]
    assert parts[0].name == "get_weather"
    assert "".join(part.arguments or "" for part in parts) == '{"city": "Paris"}'


def test_several_choices(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="talker", messages=asking("Hi"), n=2)
    assert [(choice.index, choice.message.content) for choice in answer.choices] == [(0, HELLO), (1, HELLO)]


def test_completion_streamed_and_in_one_piece(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="talker", prompt="x", max_tokens=200)
    assert whole.choices[0].text == HELLO
    pieces = client.completions.create(model="talker", prompt="x", max_tokens=200, stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == HELLO


def test_token_limit(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="talker", messages=asking("endless"), max_tokens=7)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7


def test_embeddings(client: openai.OpenAI) -> None:
    found = client.embeddings.create(model="talker", input=["one", "two", "one"], encoding_format="float").data
    assert [item.index for item in found] == [0, 1, 2]
    assert found[0].embedding == pytest.approx(found[2].embedding)
    assert found[0].embedding != pytest.approx(found[1].embedding)


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {"talker", "chatter", "demo"}
    assert client.models.retrieve("talker").owned_by == "llama-supervisor"


def test_errors_have_the_clients_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody", messages=asking("Hi"))
    assert unknown.value.code == "model_not_found"
    assert unknown.value.param == "model"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=cast(Any, 3), messages=asking("Hi"))
    assert wrong.value.code == "invalid_request"
    with pytest.raises(openai.InternalServerError) as none:
        client.embeddings.create(model="chatter", input="x")
    assert none.value.status_code == 501
    assert none.value.code == "not_supported_by_engine"
