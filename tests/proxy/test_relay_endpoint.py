"""The relay's endpoint against an engine that misbehaves as no real one does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from starlette.types import Message

from supervisor.api.errors import render_error
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.routes import SERVED
from supervisor.core.stream.sse import MAX_EVENT_BYTES
from supervisor.engines.client import EngineResponse, EngineUnreachable, NotTaken
from supervisor.errors import CrashLoop, ModelDoesNotFit, QueueFull, SupervisorError
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.naming import Naming
from supervisor.proxy.relay import RelayEndpoint, Relaying
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.waiting import Waiting
from tests.proxy.asking import answer_of
from tests.support.made_answer import MadeAnswer

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
NEVER_ENDING = b"data: " + b"x" * MAX_EVENT_BYTES


class _Engine:
    """Stands for the pool, its one lease and the engine's client; streams `parts`."""

    engine_stopped = False
    number = 1

    def __init__(self, parts: list[bytes], refusal: SupervisorError | None = None) -> None:
        self._refusal = refusal
        self.client = self
        self.leased = 0
        self.content_type = "text/event-stream"
        self._parts = parts

    async def acquire(self, model: str, affinity: str | None, wait: object = None) -> _Engine:
        if self._refusal is not None:
            raise self._refusal
        self.leased += 1
        return self

    def release(self) -> None:
        self.leased -= 1

    @asynccontextmanager
    async def post(self, path: str, body: bytes, more: str = "") -> AsyncIterator[EngineResponse]:
        yield MadeAnswer(self._parts, self.content_type)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[EngineResponse]:
        yield MadeAnswer([b"{}"], "application/json")


async def ask(engine: _Engine, *, stream: bool, path: str = "/v1/chat/completions", **more: object) -> list[Message]:
    """What the endpoint sends."""
    registry = Registry((ModelEntry("m", Source.FILE, "/m.gguf"),))
    inflight = Inflight(lambda: 0.0)
    pool = cast(Pool, engine)
    waiting = Waiting(pool, inflight, lambda: 0.0)
    naming = Naming(registry, frozenset, lambda: None)
    relaying = Relaying(pool, registry, inflight, Bodies(1 << 20, 1 << 20), render_error, ToolCalls(), waiting, naming)
    endpoint = RelayEndpoint(SERVED[path], relaying)
    body = json.dumps({"model": "m", "stream": stream, "max_tokens": 1, "messages": [], **more}).encode()
    sent = await answer_of(endpoint, {"headers": []}, body)
    assert not list(inflight)
    return sent


def test_an_event_without_end_ends_a_stream_that_has_begun_with_an_error_and_done() -> None:
    engine = _Engine([EVENT, NEVER_ENDING])
    start, first, last = asyncio.run(ask(engine, stream=True))
    assert (start["status"], first["body"]) == (200, EVENT)
    error, done = last["body"].decode().split("\n\n", 1)
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_stream_invalid"
    assert done == "data: [DONE]\n\n"
    assert not last["more_body"]
    assert engine.leased == 0


def test_an_event_without_end_is_an_error_where_no_stream_was_asked_for() -> None:
    engine = _Engine([NEVER_ENDING])
    start, body = asyncio.run(ask(engine, stream=False))
    assert start["status"] == 502
    assert json.loads(body["body"])["error"]["code"] == "engine_stream_invalid"
    assert engine.leased == 0


def test_an_event_without_end_ends_a_stream_of_which_the_head_alone_is_out() -> None:
    engine = _Engine([NEVER_ENDING])
    start, last = asyncio.run(ask(engine, stream=True))
    assert start["status"] == 200
    error, done = last["body"].decode().split("\n\n", 1)
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_stream_invalid"
    assert (done, last["more_body"], engine.leased) == ("data: [DONE]\n\n", False, 0)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 600 + "]" * 600, "no JSON", "[]"])
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_what_no_engine_should_say_is_an_error_of_the_engine(text: str, kind: str) -> None:
    """Where the one answer is made of a stream, and where it is the engine's and has to be said in another form."""
    engine = _Engine([f"data: {text}\n\n".encode() if "stream" in kind else text.encode()])
    engine.content_type = kind
    start, body = asyncio.run(ask(engine, stream=False, path="/v1/messages"))
    assert start["status"] == 502
    assert json.loads(body["body"])["error"]["code"] == "engine_stream_invalid"
    assert engine.leased == 0


TOOLS = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object"}}}]
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "choices",
    [
        '["x", 3, null]',
        '[{"index": [], "delta": {"content": "a"}}]',
        '[{"index": 0, "delta": {"tool_calls": [1]}}]',
        '[{"index": 0, "delta": {"tool_calls": [{"index": {}, "function": []}]}}]',
        '[{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": {"a": 1}, "arguments": [1]}}]}}]',
    ],
)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tools", [TOOLS, []])
def test_a_chunk_of_another_shape_is_an_error_of_the_engine(choices: str, stream: bool, tools: list[object]) -> None:
    """Whether it is passed on, folded, or searched for calls; a stream ends as streams do."""
    engine = _Engine([f'data: {{"choices": {choices}}}\n\n'.encode(), DONE])
    start, *rest = asyncio.run(ask(engine, stream=stream, tools=tools))
    said = b"".join(part["body"] for part in rest)
    assert engine.leased == 0
    if stream:
        assert said.endswith(DONE)
        assert (b"engine_stream_invalid" in said) == bool(tools)
    else:
        assert (start["status"], json.loads(said)["error"]["code"]) == (502, "engine_stream_invalid")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_half_a_pair_of_surrogates_is_no_reason_to_give_no_answer(path: str) -> None:
    """A model may write one as an escape in the arguments of a call; no UTF-8 can hold it."""
    call = {"index": 0, "id": "1", "function": {"name": "ping", "arguments": '{"a": "\\ud800"}'}}
    delta = {"content": "\ud800", "tool_calls": [call]}
    event = {"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    engine = _Engine([f"data: {json.dumps(event)}\n\n".encode(), DONE])
    start, body = asyncio.run(ask(engine, stream=False, path=path))
    assert start["status"] == 200
    assert "?" in body["body"].decode()


@pytest.mark.parametrize(
    ("refusal", "status", "header"),
    [
        (QueueFull("too many", retry_after=2.5), 429, (b"retry-after", b"3")),
        (ModelDoesNotFit("too large"), 507, (b"x-should-retry", b"false")),
        (CrashLoop("again and again"), 503, (b"x-should-retry", b"false")),
    ],
)
def test_a_refusal_says_whether_and_when_to_try_again(
    refusal: SupervisorError, status: int, header: tuple[bytes, bytes]
) -> None:
    start, body = asyncio.run(ask(_Engine([], refusal), stream=True))
    assert start["status"] == status
    assert header in start["headers"]
    assert json.loads(body["body"])["error"]["code"] == refusal.code


MIB = b" " * (1 << 20)


@pytest.mark.parametrize(("path", "most"), [("/v1/messages", 4), ("/v1/chat/completions", 256)])
def test_an_answer_in_one_piece_has_an_end(path: str, most: int) -> None:
    """It is shorter where the answer is read to be said in another form: that keeps all others waiting."""
    answer = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}]}).encode()

    def status(mebibytes: int) -> int:
        engine = _Engine([answer, *[MIB] * mebibytes])
        engine.content_type = "application/json"
        start, _ = asyncio.run(ask(engine, stream=False, path=path))
        assert engine.leased == 0
        return int(start["status"])

    assert status(most - 1) == 200
    assert status(most) == 502


def test_of_a_long_path_the_beginning_is_listed() -> None:
    """Every list of requests, and every event of one, repeats it."""
    inflight = Inflight(lambda: 0.0)

    async def listed() -> str:
        with inflight.entered("m", "/upstream/m/" + "x" * 60_000, stream=False):
            return next(iter(inflight)).path

    assert len(asyncio.run(listed())) < 1000


def test_the_last_event_and_the_end_are_one_message() -> None:
    sent = asyncio.run(ask(_Engine([b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n"]), stream=True))
    assert [(one.get("body"), one.get("more_body")) for one in sent[1:]] == [
        (b'data: {"choices":[]}\n\n', True),
        (b"data: [DONE]\n\n", False),
    ]


class _Mortal(_Engine):
    """Engines that die one after the other, each in one way; the next one answers."""

    def __init__(self, *ends: EngineUnreachable) -> None:
        super().__init__([EVENT, DONE])
        self._ends = list(ends)
        self.tried = 0
        self.broken = None
        self.engine = self
        self.model = "m"
        self.exit: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.exit.set_result("signal 9 (SIGKILL)")

    def tail(self, lines: int) -> tuple[str, ...]:
        return ()

    async def engine_gone(self, within: float) -> bool:
        return True

    @asynccontextmanager
    async def post(self, path: str, body: bytes, more: str = "") -> AsyncIterator[EngineResponse]:
        self.tried += 1
        if self._ends:
            raise self._ends.pop(0)
        yield MadeAnswer(self._parts, self.content_type)


DEAD, DIES = NotTaken("nobody listens"), EngineUnreachable("broken off")


@pytest.mark.parametrize(
    ("ends", "status", "tried"),
    [((DIES,), 200, 2), ((DIES, DIES), 502, 2), ((DEAD, DIES), 200, 3), ((DIES, DEAD, DEAD), 200, 4)],
)
def test_an_engine_that_was_dead_before_it_had_the_request_is_no_try(
    ends: tuple[EngineUnreachable, ...], status: int, tried: int
) -> None:
    async def answered() -> tuple[int, int]:
        engine = _Mortal(*ends)
        start, *_ = await ask(engine, stream=False)
        assert engine.leased == 0
        return int(start["status"]), engine.tried

    assert asyncio.run(answered()) == (status, tried)
