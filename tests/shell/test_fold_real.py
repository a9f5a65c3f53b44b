"""Our fold and our filter against a real llama-server's own answers, key by key."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.relay import Relay
from supervisor.core.upstream import plan_upstream, set_fields
from supervisor.demo.maker import write_scripted_gguf
from tests.shell.fold_model import FOLD_SCRIPT

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"

TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {key: {} for key in keys}}},
    }
    for name, keys in (("get_weather", ("city", "unit")), ("alpha", ("x",)), ("beta", ()))
]


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)  # closed with the connection, also when this fails


@pytest.fixture(scope="module")
def engine(engine_binary: Path) -> Iterator[str]:
    """Socket path of a running llama-server with four slots."""
    with tempfile.TemporaryDirectory(prefix="fold") as folder:
        model, path = Path(folder, "m.gguf"), str(Path(folder, "s.sock"))
        write_scripted_gguf(model, FOLD_SCRIPT)
        argv = [str(engine_binary), "-m", str(model), "--host", path, "--parallel", "4", "-c", "16384", "-fit", "off"]
        with Path(folder, "log").open("wb") as log:
            child = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            wait_until_ready(child, path)
            yield path
        finally:
            child.kill()
            child.wait()


def wait_until_ready(child: subprocess.Popen[bytes], path: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert child.poll() is None, "the engine exited"
        with suppress(OSError), closing(UnixConnection(path)) as connection:
            connection.request("GET", "/health")
            with connection.getresponse() as response:
                if response.status == 200:
                    return
        time.sleep(0.02)  # nothing to await: this llama-server is driven without its state protocol
    raise AssertionError("the engine was not ready in time")


def post(engine: str, path: str, body: bytes) -> tuple[int, bytes]:
    with closing(UnixConnection(engine)) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            return response.status, response.read()


def chat(word: str, **fields: Any) -> dict[str, Any]:
    # cache_prompt off: the usage of the second of two equal requests would show cached tokens
    return {"messages": [{"role": "user", "content": word}], "temperature": 0, "cache_prompt": False, **fields}


def text(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "temperature": 0, "cache_prompt": False, **fields}


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
    "a message continued": (
        CHAT,
        {
            **chat("HELLO", max_tokens=3),
            "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Begun "}],
        },
    ),
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
}


@pytest.mark.parametrize(("path", "body"), FOLDED.values(), ids=FOLDED.keys())
def test_fold_equals_the_single_answer(engine: str, path: str, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    plan = plan_upstream(path, body)
    fold = plan.new_fold()
    assert fold is not None

    status, single = post(engine, path, raw)
    assert status == 200, single
    status, streamed = post(engine, path, set_fields(raw, plan.changes))
    assert status == 200, streamed
    fold.feed(streamed)

    assert comparable(fold.response()) == comparable(json.loads(single))


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Random ids and times replaced by their kind; timings by their keys."""
    assert re.fullmatch(r"chatcmpl-\w+", answer["id"])
    result = {**answer, "id": "chatcmpl", "created": type(answer["created"]), "timings": set(answer["timings"])}
    for choice in result["choices"]:
        for call in choice.get("message", {}).get("tool_calls", []):
            assert re.fullmatch(r"\w{32}", call["id"])
            call["id"] = "call"
    return result


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
    plan = plan_upstream(CHAT, body)
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
    "completion debugging": (TEXT, text("<|say:word:hello|>", verbose=True)),
}


@pytest.mark.parametrize(("path", "body"), UNFOLDABLE.values(), ids=UNFOLDABLE.keys())
def test_the_reason_not_to_fold_is_real(engine: str, path: str, body: dict[str, Any]) -> None:
    plan = plan_upstream(path, body)
    assert plan.reason is not None
    assert plan.changes == {}

    folding = plan_upstream(path, chat("x") if path == CHAT else text("x"))
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
}


@pytest.mark.parametrize(("path", "body"), STREAMED.values(), ids=STREAMED.keys())
def test_relayed_stream_is_the_one_without_progress(engine: str, path: str, body: dict[str, Any]) -> None:
    body = {**body, "stream": True}
    raw = json.dumps(body).encode()
    plan = plan_upstream(path, body)
    assert plan.drop_progress
    _, plain = post(engine, path, raw)
    _, ours = post(engine, path, set_fields(raw, plan.changes))
    assert b'"prompt_progress":' in ours

    relay = Relay(drop_progress=plan.drop_progress)
    relayed = relay.feed(ours)

    assert masked(relayed) == masked(plain)
    assert relay.done
    assert relay.partial == b""


def masked(stream: bytes) -> list[bytes]:
    """The events without random ids, times and timings; sorted by choice, whose order among each other is free."""
    for pattern, fixed in (
        (rb'"created":\d+', b'"created":0'),
        (rb"chatcmpl-\w+", b"chatcmpl"),
        (rb'"id":"\w{32}"', b'"id":"call"'),
        (rb'"timings":\{[^}]*\}', b'"timings":{}'),
    ):
        stream = re.sub(pattern, fixed, stream)
    return sorted(stream.split(b"\n\n"), key=lambda event: b'"index":1' in event)


def test_a_continued_message_comes_with_one_role_and_its_beginning(engine: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Begun "}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 3, "stream": True}
    raw = json.dumps(body).encode()
    _, plain = post(engine, CHAT, raw)
    _, ours = post(engine, CHAT, set_fields(raw, plan_upstream(CHAT, body).changes))

    relayed = Relay(drop_progress=True).feed(ours)

    assert ours.count(b'"role"') > 1
    assert relayed.count(b'"role"') == plain.count(b'"role"') == 1
    assert b"prompt_progress" not in relayed
    assert content(relayed) == content(plain)
    assert content(relayed).startswith("Begun ")


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
    assert post(engine, CHAT, set_fields(raw, plan_upstream(CHAT, body).changes)) == refused
