"""The built-in model on a real llama-server, started for chat only and for chat and embeddings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from supervisor.demo import texts
from tests.support.plain_server import PlainServer, plain_server

pytestmark = pytest.mark.engine

_REPLIES = {reply.word: reply.text for reply in texts.DEMO.replies}
_MALFORMED = ["broken-json", "broken-xml", "unclosed", "truncated"]


@pytest.fixture(scope="module", params=[(), ("--embeddings",)], ids=["chat", "embeddings"])
def server(request: pytest.FixtureRequest, engine_binary: Path, demo_model: Path) -> Iterator[PlainServer]:
    with plain_server(engine_binary, demo_model, *request.param) as running:
        yield running


def tool(name: str, properties: Mapping[str, Any] | None = None, required: list[str] | None = None) -> dict[str, Any]:
    known = properties or {}
    parameters = {"type": "object", "properties": known, "required": list(known) if required is None else required}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": parameters}}


_TYPES: dict[str, Any] = {
    "place": {"type": "string"},
    "days": {"type": "integer"},
    "unit": {"type": "string", "enum": ["kelvin", "celsius"]},
    "exact": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "limit": {"type": "number", "minimum": 5},
    "note": {"type": ["null", "string"]},
    "either": {"anyOf": [{"const": "this"}, {"type": "integer"}]},
    "area": {
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "names": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        },
        "required": ["names"],
    },
}
_SAMPLES: dict[str, Any] = {
    "place": "demo",
    "days": 1,
    "unit": "kelvin",
    "exact": True,
    "tags": [],
    "limit": 5,
    "note": None,
    "either": "this",
    "area": {"names": ["demo"]},
}


def test_introduces_itself(server: PlainServer) -> None:
    choice = server.chat("Hello!")
    assert choice["message"]["content"] == texts.INTRODUCTION
    assert choice["finish_reason"] == "stop"


def test_streams_the_introduction_in_many_pieces(server: PlainServer) -> None:
    pieces = [delta["content"] for delta in server.stream_chat("Hello!") if delta.get("content")]
    assert "".join(pieces) == texts.INTRODUCTION
    assert len(pieces) > 50


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 2}, {"seed": 1, "top_k": 0, "top_p": 1}])
def test_sampling_does_not_change_it(server: PlainServer, options: dict[str, float]) -> None:
    assert server.chat("Hello!", **options)["message"]["content"] == texts.INTRODUCTION


def test_four_at_once_say_the_same(server: PlainServer) -> None:
    words = ["Hello", "long", "words", "late-think"] * 3
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda word: server.chat(word)["message"]["content"], words))
    assert said == [_REPLIES.get(word, texts.INTRODUCTION) for word in words]


@pytest.mark.parametrize("word", ["words", "long", "late-think", "fixed-call", *_MALFORMED])
def test_a_word_picks_a_text_that_stays_as_it_is(server: PlainServer, word: str) -> None:
    message = server.chat(f'Please say "{word.upper()}", now.')["message"]
    assert message == {"role": "assistant", "content": _REPLIES[word]}


@pytest.mark.parametrize(
    ("question", "city"),
    [
        ("What is the weather in Paris?", "Paris"),
        ("weather in Rio de Janeiro, please", "Janeiro"),
        ("and what of tomorrow", "demo"),
        ("I ask", "demo"),
    ],
)
def test_free_text_of_a_call_is_the_last_name_of_the_question(server: PlainServer, question: str, city: str) -> None:
    weather = tool("get_weather", {"city": {"type": "string"}})
    [call] = server.chat(question, tools=[weather])["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": city}


def test_part_of_a_word_picks_nothing(server: PlainServer) -> None:
    assert server.chat("I was thinking along belonging lines")["message"]["content"] == texts.INTRODUCTION


def test_words_are_found_in_content_parts_and_between_punctuation(server: PlainServer) -> None:
    for text in ("so:\ntruncated\nplease", "“Truncated”", "(truncated)…"):
        parts = [{"type": "text", "text": "Please say"}, {"type": "text", "text": text}]
        answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]})
        assert answer["choices"][0]["message"]["content"] == texts.TRUNCATED


def test_reasoning_is_parsed_by_the_engine(server: PlainServer) -> None:
    reasoning, answer = texts.THINK.removeprefix("<think>\n").split("</think>\n\n")
    message = server.chat("think")["message"]
    assert (message["reasoning_content"], message["content"]) == (reasoning, answer)
    deltas = server.stream_chat("think")
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == reasoning
    assert "".join(delta.get("content") or "" for delta in deltas) == answer


def test_reasoning_is_to_be_had_raw(server: PlainServer) -> None:
    assert server.chat("think", reasoning_format="none")["message"]["content"] == texts.THINK


def test_endless_ends_at_the_limit(server: PlainServer) -> None:
    choice = server.chat("endless", max_tokens=300)
    assert choice["finish_reason"] == "length"
    said = choice["message"]["content"]
    assert len(said) > 2 * len(texts.ENDLESS)
    assert (texts.ENDLESS * 20).startswith(said)


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("others", [[], [tool("second"), tool("third", {"x": {"type": "integer"}})]])
@pytest.mark.parametrize(
    ("first", "arguments"),
    [
        (tool("first"), {}),
        (tool("first", _TYPES, required=[]), {}),
        (tool("first", _TYPES, required=["place", "days"]), {"place": "demo", "days": 1}),
        (tool("first", _TYPES), _SAMPLES),
        ({"type": "function", "function": {"name": "first"}}, {}),
    ],
    ids=["nothing", "optional", "required", "all-types", "no-parameters"],
)
def test_calls_the_first_tool(
    server: PlainServer, first: dict[str, Any], arguments: dict[str, Any], others: list[dict[str, Any]], choice: str
) -> None:
    answer = server.chat("Hello!", tools=[first, *others], tool_choice=choice)
    (call,) = answer["message"]["tool_calls"]
    assert call["function"]["name"] == "first"
    assert json.loads(call["function"]["arguments"]) == arguments
    assert not answer["message"]["content"]
    assert answer["finish_reason"] == "tool_calls"


def test_streams_the_call(server: PlainServer) -> None:
    tools = [tool("first", {"place": {"type": "string"}}), tool("second")]
    parts = [call for delta in server.stream_chat("Hello!", tools=tools) for call in delta.get("tool_calls") or []]
    assert [part["function"]["name"] for part in parts if part["function"].get("name")] == ["first"]
    assert json.loads("".join(part["function"].get("arguments") or "" for part in parts)) == {"place": "demo"}


def test_answers_after_the_tool(server: PlainServer) -> None:
    tools = [tool("first")]
    (call,) = server.chat("Hello!", tools=tools)["message"]["tool_calls"]
    messages = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "think of 42"},
    ]
    answer = server.post("/v1/chat/completions", {"messages": messages, "tools": tools})
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": texts.AFTER_TOOL}


@pytest.mark.parametrize("word", _MALFORMED)
def test_malformed_calls_stay_raw_although_tools_are_offered(server: PlainServer, word: str) -> None:
    answer = server.chat(word, tools=[tool("get_weather", {"city": {"type": "string"}})])
    assert answer["message"] == {"role": "assistant", "content": _REPLIES[word]}
    assert answer["finish_reason"] == "stop"


def test_the_fixed_call_is_parsed_when_its_tool_is_offered(server: PlainServer) -> None:
    tools = [tool("other"), tool("get_weather", {"city": {"type": "string"}})]
    (call,) = server.chat("fixed-call", tools=tools)["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Paris"})


def test_a_grammar_bends_the_fixed_call_to_the_tools_offered(server: PlainServer) -> None:
    (call,) = server.chat("fixed-call", tools=[tool("other", {"count": {"type": "integer"}})])["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("other", {"count": 0})


def test_a_required_call_follows_a_text_that_a_word_picked(server: PlainServer) -> None:
    answer = server.chat("words", tools=[tool("only")], tool_choice="required", max_tokens=1000)
    assert answer["message"]["content"].strip() == texts.WORDS
    (call,) = answer["message"]["tool_calls"]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("only", "{}")


def test_a_schema_is_obeyed_in_bounded_length(server: PlainServer) -> None:
    schema = {"type": "object", "properties": _TYPES, "required": list(_TYPES)}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = server.chat("Hello!", response_format=wanted, max_tokens=1000)
    assert answer["finish_reason"] == "stop"
    assert json.loads(answer["message"]["content"]).keys() == _TYPES.keys()


def test_any_json_is_bounded_too(server: PlainServer) -> None:
    answer = server.chat("Hello!", response_format={"type": "json_object"}, max_tokens=1000)
    assert answer["finish_reason"] == "stop"
    json.loads(answer["message"]["content"])


def test_a_plain_prompt_is_continued_with_the_introduction(server: PlainServer) -> None:
    for prompt in ("Once upon a time", "Grüße 🦙"):
        answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 500})
        assert answer["choices"][0]["text"] == texts.INTRODUCTION


def test_a_start_token_as_prompt_picks_its_text(server: PlainServer) -> None:
    answer = server.post("/v1/completions", {"prompt": "<|say:word:long|>", "max_tokens": 2000})
    assert answer["choices"][0]["text"] == texts.LONG


def test_embeddings_are_distinct_and_the_same_every_time(engine_binary: Path, demo_model: Path) -> None:
    with plain_server(engine_binary, demo_model, "--embeddings") as server:
        inputs = ["A cat.", "A dog.", "Something else entirely"]
        first, again = (server.post("/v1/embeddings", {"input": inputs})["data"] for _ in range(2))
        vectors = [tuple(item["embedding"]) for item in first]
        assert len(set(vectors)) == 3
        assert vectors == [tuple(item["embedding"]) for item in again]
        # Shared letters make texts alike, as far as a model without a mind can tell.
        assert _similarity(vectors[0], vectors[1]) > _similarity(vectors[0], vectors[2])


def _similarity(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
