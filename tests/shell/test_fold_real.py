"""Our fold and our filter against a real llama-server's own answers, key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.routes import api_of, kind_of
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.stream.outgoing import outgoing_request
from supervisor.core.text.members import set_fields
from tests.shell.bare_engine import (
    CHAT,
    FUNCTIONS,
    RAW,
    RESPONSES,
    TEXT,
    TOOLS,
    bare_engine,
    chat,
    comparable,
    masked,
    post,
    said,
    text,
)
from tests.shell.fold_model import FOLD_SCRIPT

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine(engine_binary: Path) -> Iterator[str]:
    """Socket path of a running llama-server with four slots."""
    with bare_engine(engine_binary, FOLD_SCRIPT) as path:
        yield path


BEGUN = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Begun "}]
BEGUN_ITEMS = [BEGUN[0], {**BEGUN[1], "type": "message"}]
CONTINUED = {"messages": BEGUN, "add_generation_prompt": False}
FOLDED = {
    "text": (CHAT, chat("HELLO")),
    "reasoning": (CHAT, chat("THINK")),
    "reasoning left in the content": (CHAT, chat("THINK", reasoning_format="none")),
    "reasoning in the old format": (CHAT, chat("THINK", reasoning_format="deepseek-legacy")),
    "one tool call": (CHAT, chat("TOOL", tools=TOOLS)),
    "two tool calls after text": (CHAT, chat("PAIR", tools=TOOLS, parallel_tool_calls=True)),
    "a tool call without tools": (CHAT, chat("TOOL")),
    "a tool call cut off": (CHAT, chat("TOOL", tools=TOOLS, max_tokens=9)),
    "several choices": (CHAT, chat("HELLO", n=2)),
    "stop word": (CHAT, chat("HELLO", stop=[" STOP"])),
    "stop word as a string": (CHAT, chat("HELLO", stop=" STOP")),
    "length": (CHAT, chat("HELLO", max_tokens=3)),
    "no token at all": (CHAT, chat("HELLO", max_tokens=0)),
    "multi-byte characters": (CHAT, chat("SIGNS")),
    "the name of the filtered key": (CHAT, chat("LITERAL")),
    "timings per token": (CHAT, chat("HELLO", timings_per_token=True)),
    "a message continued": (CHAT, {**chat("HELLO", max_tokens=3), "messages": BEGUN}),
    "a message continued by name": (CHAT, {**chat("x", max_tokens=3), **CONTINUED, "continue_final_message": True}),
    "its content continued": (CHAT, {**chat("x", max_tokens=3), **CONTINUED, "continue_final_message": "content"}),
    "stream null": (CHAT, chat("HELLO", stream=None, stream_options=None)),
    "completion": (TEXT, text("<|say:word:hello|>")),
    "completion of several prompts": (TEXT, text(["<|say:word:hello|>", "<|say:word:think|>"])),
    "completion of several prompts and choices": (TEXT, text(["<|say:word:hello|>", "<|say:word:think|>"], n=2)),
    "completion with several choices": (TEXT, text("<|say:word:signs|>", n=2)),
    "completion with logprobs": (TEXT, text("<|say:word:signs|>", logprobs=2)),
    "completion with sampled probabilities": (TEXT, text("<|say:word:hello|>", n_probs=1, post_sampling_probs=True)),
    "completion with a stop word": (TEXT, text("<|say:word:hello|>", stop=[" STOP"])),
    "completion cut off": (TEXT, text("<|say:word:hello|>", max_tokens=2)),
    "completion with token ids": (TEXT, text("<|say:word:hello|>", return_tokens=True, response_fields=["content"])),
    "completion debugging": (TEXT, text("<|say:word:hello|>", verbose=True)),
    "completion debugging with probabilities": (TEXT, text("<|say:word:hello|>", verbose=True, n_probs=2, n=2)),
    "a response": (RESPONSES, said("HELLO")),
    "a response with reasoning": (RESPONSES, said("THINK")),
    "a response with a call": (RESPONSES, said("TOOL", tools=FUNCTIONS)),
    "a response with two calls": (RESPONSES, said("PAIR", tools=FUNCTIONS, parallel_tool_calls=True)),
    "a response cut off": (RESPONSES, said("HELLO", max_output_tokens=3)),
    "a response without a token": (RESPONSES, said("HELLO", max_output_tokens=0)),
    "a response with instructions": (RESPONSES, said([{"role": "user", "content": "SIGNS"}], instructions="Be kind.")),
    "a response with the filtered key": (RESPONSES, said("LITERAL", timings_per_token=True)),
    "a response continued": (RESPONSES, said(BEGUN_ITEMS, max_output_tokens=3)),
    "raw": (RAW, text("<|say:word:hello|>")),
    "raw by its other name": ("/completions", text("<|say:word:signs|>")),
    "raw, several prompts": (RAW, text(["<|say:word:hello|>", "<|say:word:think|>"])),
    "raw, several choices": (RAW, text("<|say:word:hello|>", n=2)),
    "raw, some fields": (
        RAW,
        text("<|say:word:hello|>", response_fields=["content", "none/such", "generation_settings/stream", "stop"]),
    ),
    "raw, fields of several": (RAW, text(["<|say:word:hello|>", "x"], response_fields=["content"], max_tokens=3)),
    "raw with probabilities": (RAW, text("<|say:word:signs|>", n_probs=2)),
    "raw with sampled probabilities": (RAW, text("<|say:word:signs|>", n_probs=1, post_sampling_probs=True)),
    "raw with a stop word": (RAW, text("<|say:word:hello|>", stop=[" STOP"])),
    "raw cut off": (RAW, text("<|say:word:hello|>", n_predict=3)),
    "raw without a token": (RAW, text("<|say:word:hello|>", n_predict=0)),
    "raw with the filtered key": (RAW, text("<|say:word:literal|>", timings_per_token=True)),
}


@pytest.mark.parametrize(("path", "body"), FOLDED.values(), ids=FOLDED.keys())
def test_fold_equals_the_single_answer(engine: str, path: str, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    plan = outgoing_request(kind_of(path), body)
    fold = plan.new_fold()
    assert fold is not None

    status, single = post(engine, path, raw)
    assert status == 200, single
    status, streamed = post(engine, path, set_fields(raw, plan.changes))
    assert status == 200, streamed
    fold.feed(streamed)

    assert comparable(fold.response()) == comparable(json.loads(single))


def test_the_engine_parses_what_these_tests_compare(engine: str) -> None:
    def message(body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(post(engine, CHAT, json.dumps(body).encode())[1])
        return dict(answer["choices"][0]["message"])

    assert message(chat("THINK"))["reasoning_content"] == "Let me ponder.\n"
    calls = message(chat("PAIR", tools=TOOLS, parallel_tool_calls=True))["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["alpha", "beta"]


def test_markup_around_nothing_is_the_one_known_difference(engine: str) -> None:
    """Where its parser leaves no text at all, the engine's single answer shows the markup as content, a stream shows
    nothing; nobody can know beforehand, and nothing is the better answer."""
    body = chat("EMPTY")
    raw = json.dumps(body).encode()
    plan = outgoing_request(kind_of(CHAT), body)
    fold = plan.new_fold()
    assert fold is not None
    single = json.loads(post(engine, CHAT, raw)[1])
    fold.feed(post(engine, CHAT, set_fields(raw, plan.changes))[1])
    folded: Any = fold.response()
    assert single["choices"][0]["message"]["content"] == "<think>\n\n</think>\n\n"
    assert folded["choices"][0]["message"] == {"role": "assistant", "content": ""}


UNFOLDABLE = {
    "chat logprobs": (CHAT, chat("HELLO", logprobs=True)),
    "chat logprobs with tools": (CHAT, chat("TOOL", tools=TOOLS, logprobs=True)),
    "chat debugging": (CHAT, chat("HELLO", verbose=True)),
    "completion logprobs with a stop word": (TEXT, text("<|say:word:hello|>", logprobs=1, stop="STOP here")),
    "completion debugging with token ids": (TEXT, text("<|say:word:signs|>", verbose=True, return_tokens=True)),
    "raw with token ids": (RAW, text("<|say:word:signs|>", return_tokens=True)),
    "raw with probabilities and a stop word": (RAW, text("<|say:word:hello|>", n_probs=1, stop="STOP here")),
    "a response of several choices": (RESPONSES, said("HELLO", n=2)),
    "a response with probabilities and tools": (RESPONSES, said("TOOL", tools=FUNCTIONS, logprobs=True)),
}


@pytest.mark.parametrize(("path", "body"), UNFOLDABLE.values(), ids=UNFOLDABLE.keys())
def test_the_reason_not_to_fold_is_real(engine: str, path: str, body: dict[str, Any]) -> None:
    plan = outgoing_request(kind_of(path), body)
    assert plan.reason is not None
    assert plan.changes == {}

    folding = outgoing_request(kind_of(path), {"prompt": "x", "messages": [], "input": "x"})
    fold = folding.new_fold()
    assert fold is not None
    raw = json.dumps(body).encode()
    status, single = post(engine, path, raw)
    assert status == 200, single
    status, streamed = post(engine, path, set_fields(raw, folding.changes))
    if status != 200:
        assert b"not supported with tools + stream" in streamed
        return
    fold.feed(streamed)
    assert comparable(fold.response()) != comparable(json.loads(single))


STREAMED = {
    "text": (CHAT, chat("HELLO")),
    "usage": (CHAT, chat("HELLO", stream_options={"include_usage": True})),
    "reasoning": (CHAT, chat("THINK")),
    "tools": (CHAT, chat("PAIR", tools=TOOLS)),
    "several choices": (CHAT, chat("HELLO", n=2)),
    "logprobs": (CHAT, chat("SIGNS", logprobs=True)),
    "the name of the filtered key": (CHAT, chat("LITERAL")),
    "no token at all": (CHAT, chat("HELLO", max_tokens=0)),
    "long prompt": (CHAT, chat("HELLO " + "x" * 3000)),
    "completion": (TEXT, text("<|say:word:signs|>", logprobs=1)),
    "completion of several choices": (TEXT, text("<|say:word:hello|>", n=2)),
    "a response": (RESPONSES, said("HELLO")),
    "a response with reasoning": (RESPONSES, said("THINK")),
    "a response with calls": (RESPONSES, said("PAIR", tools=FUNCTIONS)),
    "a response with the filtered key": (RESPONSES, said("LITERAL", instructions="prompt_progress")),
    "a response to a long prompt": (RESPONSES, said("HELLO " + "x" * 3000)),
    "raw": (RAW, text("<|say:word:signs|>", n_probs=1)),
    "raw, a long prompt": (RAW, text("x" * 3000, n_predict=5)),
}


@pytest.mark.parametrize(("path", "body"), STREAMED.values(), ids=STREAMED.keys())
def test_relayed_stream_is_the_one_without_progress(engine: str, path: str, body: dict[str, Any]) -> None:
    body = {**body, "stream": True}
    raw = json.dumps(body).encode()
    plan = outgoing_request(kind_of(path), body)
    assert plan.drop_progress
    _, plain = post(engine, path, raw)
    _, ours = post(engine, path, set_fields(raw, plan.changes))
    assert b'"prompt_progress":' in ours

    relay = StreamFilter(drop_progress=plan.drop_progress, api=api_of(path))
    relayed = relay.feed(ours)

    assert masked(relayed) == masked(plain)
    assert relay.done or path == RAW
    assert relay.partial == b""


def test_a_continued_message_comes_with_one_role_and_its_beginning(engine: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Begun "}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 3, "stream": True}
    raw = json.dumps(body).encode()
    _, plain = post(engine, CHAT, raw)
    _, ours = post(engine, CHAT, set_fields(raw, outgoing_request(kind_of(CHAT), body).changes))

    relayed = StreamFilter(drop_progress=True).feed(ours)

    assert ours.count(b'"role"') > 1
    assert relayed.count(b'"role"') == plain.count(b'"role"') == 1
    assert b"prompt_progress" not in relayed
    assert content(relayed) == content(plain)
    assert content(relayed).startswith("Begun ")


def test_a_continued_response_begins_once_and_with_its_beginning(engine: str) -> None:
    body = said(BEGUN_ITEMS, max_output_tokens=3, stream=True)
    raw = json.dumps(body).encode()
    _, plain = post(engine, RESPONSES, raw)
    _, ours = post(engine, RESPONSES, set_fields(raw, outgoing_request(kind_of(RESPONSES), body).changes))

    relayed = StreamFilter(drop_progress=True, api=api_of(RESPONSES)).feed(ours)

    def spoken(stream: bytes) -> list[tuple[str, str]]:
        """The kinds of the events, neighbours of one kind as one, each with its text."""
        found: list[tuple[str, str]] = []
        for event in stream.split(b"\n\n")[:-1]:
            data = json.loads(event.partition(b"data: ")[2])
            text = found.pop()[1] if found and found[-1][0] == data["type"] else ""
            found.append((data["type"], text + data.get("delta", "")))
        return found

    assert b"prompt_progress" not in relayed
    assert spoken(relayed) == spoken(plain)
    assert any(text.startswith("Begun ") for _, text in spoken(relayed))


def content(stream: bytes) -> str:
    chunks = [json.loads(event[6:]) for event in stream.split(b"\n\n") if event.startswith(b"data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def test_of_a_key_set_twice_the_engine_takes_the_last(engine: str) -> None:
    body = b' {"prompt": "<|say:word:hello|>", "max_tokens": 1, "stream": false} \n'
    raw = set_fields(body, {"stream": True, "max_tokens": 2})
    status, answer = post(engine, TEXT, raw)
    assert status == 200
    assert answer.startswith(b"data: ")
    assert b'"completion_tokens":2' in answer


REFUSED: tuple[dict[str, Any], ...] = (
    {"stream": "yes"},
    {"stream": 1},
    {"return_progress": "x"},
    {"n": 99},
    {"temperature": "hot"},
    {"messages": [{"role": "user", "content": "longer than the context " * 400}]},
)


@pytest.mark.parametrize("fields", REFUSED, ids=[next(iter(fields)) for fields in REFUSED])
def test_what_the_engine_refuses_is_refused_all_the_same(engine: str, fields: dict[str, Any]) -> None:
    body = chat("HELLO", **fields)
    raw = json.dumps(body).encode()
    refused = post(engine, CHAT, raw)
    assert refused[0] == 400
    assert post(engine, CHAT, set_fields(raw, outgoing_request(kind_of(CHAT), body).changes)) == refused
