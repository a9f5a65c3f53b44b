"""Requests of Ollama's API, turned into an engine's: names, durations, options, conversations."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest

from supervisor.core.doors.durations import keep_alive
from supervisor.core.doors.names import digest_of, meant_names, shown_name
from supervisor.core.doors.ollama_requests import chat, embed, embeddings, generate
from supervisor.core.doors.shortened import Exceeded, shortened
from supervisor.core.doors.turns import TURNS
from supervisor.core.params.fit import PARAMETERS
from supervisor.core.params.ollama import OLLAMA, from_options
from supervisor.core.routes import DOORS, SERVED
from supervisor.errors import InvalidRequest


def head(text: str, most: int) -> str:
    return text[:most]


def user(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def test_every_door_turns_its_requests() -> None:
    assert list(TURNS) == [row.path for row in DOORS]
    assert set(TURNS) <= set(SERVED)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *((None, None), ("", None), (0, 0), ("0", 0), ("0s", 0), (5, 5), (2.5, 2.5), ("5m", 300), ("1h30m", 5400)),
        *(("1.5s", 1.5), (".5s", 0.5), ("100ms", 0.1), ("1us", 1e-6), ("1µs", 1e-6), ("+2s", 2)),
        *((-1, math.inf), ("-1", math.inf), ("-1m", math.inf), (10**400, math.inf), ("999999999h", math.inf)),
    ],
)
def test_times_to_stay(value: object, seconds: float | None) -> None:
    assert keep_alive(value) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    "value", ["soon", "5", "5x", "1h 30m", "m", True, [], {}, math.nan, "9" * 200 + "s", "1s" * 100]
)
def test_what_is_no_time_to_stay(value: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        keep_alive(value)
    assert refused.value.param == "keep_alive"


@pytest.mark.parametrize(
    ("model", "shown"),
    [("demo", "demo:latest"), ("a:7b", "a:7b"), ("owner/repo:Q4_0", "owner/repo:Q4_0"), ("o/r", "o/r:latest")],
)
def test_names_are_shown_with_a_tag(model: str, shown: str) -> None:
    assert shown_name(model) == shown
    assert list(meant_names(shown))[-1] == model or ":" in model
    assert len(digest_of(model)) == 64


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("demo:latest", "demo"),
        ("demo:LATEST", "demo"),
        ("hf.co/owner/repo:Q4_K_M", "owner/repo:Q4_K_M"),
        ("HF.co/owner/repo", "owner/repo"),
        ("huggingface.co/owner/repo:latest", "owner/repo"),
    ],
)
def test_names_mean_ours(name: str, meant: str) -> None:
    assert list(meant_names(name)) == [name, meant]


def test_options_have_a_row_each_and_names_that_the_engine_knows() -> None:
    assert len({row.name for row in OLLAMA}) == len(OLLAMA)
    fields, context = from_options({"num_predict": 4, "num_keep": 2, "top_k": 5, "num_ctx": 9, "num_gpu": 1, "x": 1})
    assert (fields, context) == ({"n_predict": 4, "n_keep": 2, "top_k": 5}, 9)
    assert set(fields) <= set(PARAMETERS)


def test_nulls_ask_for_nothing() -> None:
    assert from_options({row.name: None for row in OLLAMA}) == ({}, None)
    assert from_options(None) == ({}, None)


@pytest.mark.parametrize("options", [[], "x", {"seed": "x"}, {"stop": [1]}, {"num_ctx": 1.5}, {"num_ctx": 10**12}])
def test_options_of_wrong_types(options: object) -> None:
    with pytest.raises(InvalidRequest):
        from_options(options)


def test_a_chat_streams_by_default() -> None:
    assert chat({"model": "m", "messages": user("hi")}, head).fields["stream"] is True
    assert chat({"model": "m", "messages": user("hi"), "stream": None}, head).fields["stream"] is True
    assert chat({"model": "m", "messages": user("hi"), "stream": False}, head).fields["stream"] is False


def test_calls_and_results_find_each_other() -> None:
    calls = [{"function": {"name": name, "arguments": {"n": name}}} for name in ("a", "b")]
    results = [{"role": "tool", "tool_name": name, "content": name} for name in ("b", "a")]
    loose = {"role": "tool", "content": "?"}
    turned = chat({"messages": [{"role": "assistant", "tool_calls": calls}, *results, loose]}, head).fields["messages"]
    said: Any = turned
    assert [call["id"] for call in said[0]["tool_calls"]] == ["call_1", "call_2"]
    assert json.loads(said[0]["tool_calls"][1]["function"]["arguments"]) == {"n": "b"}
    assert [(one["tool_call_id"], one["name"]) for one in said[1:3]] == [("call_2", "b"), ("call_1", "a")]
    assert "tool_call_id" not in said[3]


@pytest.mark.parametrize(
    ("begins", "part"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x24\x08\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x24\x08\x00\x00WAVEfmt ", "wav"),
        (b"ID3\x04", "mp3"),
        (b"\xff\xfb\x90\x00", "mp3"),
        (b"fLaC\x00", "flac"),
        (b"who knows", "image/jpeg"),
    ],
)
def test_media_are_told_by_how_they_begin(begins: bytes, part: str) -> None:
    data = base64.b64encode(begins + bytes(64)).decode()
    messages: Any = generate({"prompt": "look", "images": [data]}, head).fields["messages"]
    found, text = messages[0]["content"]
    assert text == {"type": "text", "text": "look"}
    if part.startswith("image/"):
        assert found["image_url"]["url"] == f"data:{part};base64,{data}"
    else:
        assert found["input_audio"] == {"data": data, "format": part}


def test_a_name_of_an_address_is_none() -> None:
    """What stands in `images` is taken for base64, whatever it says: nothing is fetched."""
    messages: Any = chat({"messages": [{"role": "user", "images": ["http://127.0.0.1/x"]}]}, head).fields["messages"]
    assert messages[0]["content"][0]["image_url"]["url"].startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": "hi"},
        {"messages": ["hi"]},
        {"messages": [{"role": "assistant", "tool_calls": [1]}]},
        {"messages": [{"role": "assistant", "tool_calls": {}}, {"role": "assistant", "tool_calls": "x"}]},
        {"messages": user("hi"), "stream": "yes"},
        {"messages": user("hi"), "tools": {}},
        {"messages": user("hi"), "top_logprobs": 21},
        {"messages": [{"role": "user", "images": "x"}]},
    ],
)
def test_wrong_types_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(body, head)
    assert refused.value.param


def test_raw_fields_are_the_engines() -> None:
    body = {"prompt": "a", "raw": True, "format": "json", "think": True, "logprobs": True, "options": {"seed": 1}}
    turned = generate(body, head)
    assert turned.path == "/completion"
    assert turned.fields == {
        "stream": True,
        "seed": 1,
        "json_schema": {"type": "object"},
        "n_probs": 1,
        "prompt": "a",
    }
    for name, value in {"system": "x", "images": ["x"]}.items():
        with pytest.raises(InvalidRequest, match=f"`{name}`"):
            generate({**body, name: value}, head)
    assert generate({"prompt": "a", "suffix": "b"}, head).path == "/infill"


def test_vectors_are_asked_for() -> None:
    assert embed({"input": "a"}, head).fields == {"input": ["a"]}
    assert embeddings({"prompt": "a"}, head).fields == {"input": "a", "embd_normalize": -1}


@pytest.mark.parametrize("wrong", [5, [5], {}])
def test_only_texts_become_vectors(wrong: object) -> None:
    with pytest.raises(InvalidRequest):
        embed({"input": wrong}, head)


# -- conversations that are too long


def turns(count: int) -> list[dict[str, Any]]:
    return [
        {"role": "user" if number % 2 == 0 else "assistant", "content": f"{number}" * 84} for number in range(count)
    ]


def test_the_oldest_messages_go_and_the_system_s_stay() -> None:
    system = {"role": "system", "content": "s" * 84}
    messages = [system, *turns(9)]
    fewer = shortened(messages, Exceeded(1000, 600), head)
    assert fewer is not None
    assert fewer[0] is system
    assert fewer[1:] == messages[len(messages) - len(fewer) + 1 :]
    assert 4 <= len(fewer) <= 6, "as many as fit, by the average of the prompt"


def test_a_result_goes_with_its_call() -> None:
    call = {"role": "assistant", "content": "x" * 300, "tool_calls": []}
    messages = [call, {"role": "tool", "content": "y"}, {"role": "tool", "content": "z"}, *turns(1)]
    assert shortened(messages, Exceeded(110, 100), head) == messages[3:]


def test_the_last_message_never_goes() -> None:
    assert shortened(turns(1), Exceeded(1000, 10), head) is None
    assert shortened([{"role": "system", "content": "x"}, *turns(1)], Exceeded(1000, 10), head) is None


def test_only_the_engine_s_own_error_counts() -> None:
    error = {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}
    assert Exceeded.of(error) == Exceeded(9, 8)
    assert Exceeded.of({**error, "type": "invalid_request_error"}) is None
    assert Exceeded.of({**error, "n_ctx": "8"}) is None
