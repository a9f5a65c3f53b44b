"""Bodies on their way through the relay: what of them the engine gets, and what they cost while they are here."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import pytest
from starlette.types import ASGIApp, Message, Scope

from supervisor.api.errors import render_error
from supervisor.core.models.filters import RequestFilters
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.routes import SERVED
from supervisor.engines.client import EngineResponse, Payload
from supervisor.errors import InvalidRequest, PayloadTooLarge
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.bodies import Bodies, ClientJson, Turns, read_json
from supervisor.proxy.naming import Naming
from supervisor.proxy.relay import RelayEndpoint, Relaying
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting
from tests.support.made_answer import MadeAnswer
from tests.support.patience import PATIENCE

MIB = 1 << 20
IMAGE = "data:image/png;base64," + "iVBORw0K" * 100_000
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
ANSWER = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n'
PROPS = b'{"chat_template_caps": {"supports_tools": true}}'


class _Engine:
    """Stands for the pool, its leases and the engine's client; keeps what it is asked."""

    engine_stopped = False
    number = 1
    model = "m"

    def __init__(self) -> None:
        self.client = self
        self.asked: list[tuple[str, bytes]] = []
        self.granted = asyncio.Event()
        self.granted.set()

    async def acquire(self, model: str, affinity: str | None = None, wait: object = None) -> _Engine:
        await self.granted.wait()
        return self

    def release(self) -> None:
        pass

    @asynccontextmanager
    async def post(self, path: str, body: Payload, more: str = "") -> AsyncIterator[EngineResponse]:
        self.asked.append((path, body if isinstance(body, bytes) else b"".join(body)))
        yield MadeAnswer([ANSWER])

    def send(
        self, method: str, target: str, body: Payload, content_type: str, more: str = ""
    ) -> AbstractAsyncContextManager[EngineResponse]:
        return self.post(target, body)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[EngineResponse]:
        yield MadeAnswer([PROPS], "application/json")


def relaying_to(engine: _Engine, bodies: Bodies, **entry: Any) -> Relaying:
    """What the endpoints in front of this engine share."""
    registry, inflight = Registry((ModelEntry("m", Source.FILE, "/m.gguf", **entry),)), Inflight(lambda: 0.0)
    pool = cast(Pool, engine)
    waiting = Waiting(pool, inflight, lambda: 0.0)
    naming = Naming(registry, frozenset, lambda: None)
    return Relaying(pool, registry, inflight, bodies, render_error, ToolCalls(), waiting, naming)


def endpoint(engine: _Engine, bodies: Bodies, path: str = "/v1/chat/completions", **entry: Any) -> ASGIApp:
    """The endpoint of a relayed path in front of this engine."""
    return RelayEndpoint(SERVED[path], relaying_to(engine, bodies, **entry))


def pieces_of(body: bytes, size: int = 1 << 16) -> Iterator[bytes]:
    """As a server hands it on."""
    return (body[at : at + size] for at in range(0, len(body), size))


async def ask(
    app: ASGIApp, pieces: Iterator[bytes], *, leaves: bool = False, scope: Scope | None = None
) -> list[Message]:
    """What is sent to a client that sends these pieces, and then stays or leaves in the middle."""
    sent: list[Message] = []
    done = False

    async def receive() -> Message:
        nonlocal done
        if done:
            await asyncio.Event().wait()
        piece = next(pieces, None)
        if piece is None and leaves:
            return {"type": "http.disconnect"}
        done = piece is None
        return {"type": "http.request", "body": piece or b"", "more_body": not done}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"headers": (), **(scope or {})}, receive, send)
    return sent


def engine_gets(request: Mapping[str, Any], path: str = "/v1/chat/completions", **entry: Any) -> tuple[str, Any]:
    """Path and parsed body of what the engine is asked for a client's request."""

    async def run() -> tuple[str, Any]:
        engine, bodies = _Engine(), Bodies(64 * MIB, 64 * MIB)
        body = json.dumps(request).encode()
        sent = await ask(endpoint(engine, bodies, path, **entry), pieces_of(body))
        assert sent[0]["status"] == 200, sent
        assert bodies.held == 0
        (asked,) = engine.asked
        return asked[0], json.loads(asked[1])

    return asyncio.run(run())


def chat(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": list(messages), **more}


LOOK = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]}
CALLED = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": '{"at": "x'}}]}


def test_a_large_chat_reaches_the_engine_as_it_came() -> None:
    request = chat(LOOK, {"role": "user", "content": 'Wörter "und"\n' * 20_000}, seed=12345678901234567890)
    assert engine_gets(request) == ("/v1/chat/completions", {**request, "return_progress": True})


def test_calls_of_a_large_chat_are_mended_and_its_images_stay() -> None:
    path, asked = engine_gets(chat(LOOK, CALLED, {"role": "tool", "tool_call_id": "1", "content": IMAGE}, tools=TOOLS))
    assert path == "/v1/chat/completions"
    assert [message.get("content") for message in asked["messages"]] == [LOOK["content"], None, IMAGE]
    assert json.loads(asked["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {}


def test_large_requests_of_other_apis_become_chats_with_their_images() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0K" * 100_000}
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {"content": "x" * 9000}}
    messages = [
        {"role": "user", "content": [{"type": "image", "source": source}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "y" * 9000}]},
    ]
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    path, asked = engine_gets({"model": "m", "messages": messages, "tools": tools}, "/v1/messages")
    assert path == "/v1/chat/completions"
    assert asked["messages"][0]["content"] == [{"type": "image_url", "image_url": {"url": IMAGE}}]
    arguments = asked["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == use["input"]
    assert asked["messages"][2]["content"] == "y" * 9000
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}]
    _, asked = engine_gets(
        {"model": "m", "input": items, "tools": [{"type": "function", "name": "f"}]}, "/v1/responses"
    )
    assert asked["messages"][0]["content"] == [{"type": "image_url", "image_url": {"url": IMAGE}}]


def test_filters_hold_for_large_requests() -> None:
    filters = RequestFilters({"seed": 7, "stop": ["x"]}, frozenset({"numbers"}))
    _, asked = engine_gets(chat(LOOK, numbers=[1] * 3_000_000, seed=1), filters=filters)
    assert asked == {**chat(LOOK, seed=7, stop=["x"]), "return_progress": True}


def test_a_request_of_which_a_field_is_not_looked_at_is_passed_on_without_a_watch() -> None:
    many = [{"role": "user", "content": "x"}] * 40_000
    path, asked = engine_gets(chat(*many, CALLED, tools=TOOLS, tool_calls="raw"))
    assert path == "/v1/chat/completions"
    assert asked == {**chat(*many, CALLED, tools=TOOLS), "return_progress": True}


def test_embeddings_of_many_texts_and_numbers_reach_the_engine_as_they_came() -> None:
    for given in (["some words"] * 100_000, [[1, 2, 3]] * 100_000, list(range(300_000))):
        request = {"model": "m", "input": given}
        assert engine_gets(request, "/v1/embeddings") == ("/v1/embeddings", request)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_what_goes_to_an_engine_by_its_own_path_is_looked_at_only_where_it_generates(path: str) -> None:
    async def run(body: bytes) -> bytes:
        engine, bodies = _Engine(), Bodies(64 * MIB, 64 * MIB)
        named = "/upstream/m" + path
        scope = {"method": "POST", "path": named, "raw_path": named.encode(), "query_string": b""}
        await ask(upstream_endpoint(relaying_to(engine, bodies), lambda: 0), pieces_of(body), scope=scope)
        assert bodies.held == 0
        (asked,) = engine.asked
        assert asked[0] == path
        return asked[1]

    body = json.dumps(chat(LOOK)).encode()
    changed = {"return_progress": True} if path != "/tokenize" else {}
    assert json.loads(asyncio.run(run(body))) == {**chat(LOOK), **changed}
    words = json.dumps(chat({"role": "user", "content": "word " * (MIB // 5)})).encode()
    for broken in (words[:-1], b"x" * MIB, b'{"model": ' + b"[" * MIB):
        assert asyncio.run(run(broken)) == broken


def test_bodies_of_requests_that_wait_count_until_they_are_over() -> None:
    async def run() -> None:
        engine, bodies = _Engine(), Bodies(2 * MIB, 3 * MIB)
        app, body = endpoint(engine, bodies), json.dumps(chat(LOOK, LOOK)).encode()
        assert MIB < len(body) < 2 * MIB
        engine.granted.clear()
        first = asyncio.ensure_future(ask(app, pieces_of(body)))
        while bodies.held < len(body):  # noqa: ASYNC110 - it is no event that a body has been read
            await asyncio.sleep(0)
        (head, refusal) = await ask(app, pieces_of(body))
        assert (head["status"], json.loads(refusal["body"])["error"]["code"]) == (503, "bodies_full")
        assert any(name == b"retry-after" for name, _ in head["headers"])
        assert bodies.held == len(body)
        engine.granted.set()
        assert (await first)[0]["status"] == 200
        assert bodies.held == 0
        assert (await ask(app, pieces_of(body)))[0]["status"] == 200

    asyncio.run(run())


def test_a_client_that_leaves_in_the_middle_gives_its_room_back() -> None:
    async def run() -> int:
        bodies = Bodies(2 * MIB, 2 * MIB)
        sent = await ask(endpoint(_Engine(), bodies), iter([b'{"model": "m', b"x" * MIB]), leaves=True)
        assert not sent
        return bodies.held

    assert asyncio.run(run()) == 0


def test_a_body_longer_than_it_says_is_refused() -> None:
    async def run() -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"x" * MIB, "more_body": True}

        with Bodies(2 * MIB, 2 * MIB).room() as room, pytest.raises(InvalidRequest):
            await read_json(receive, room, 100_000)

    asyncio.run(run())


def test_who_computes_on_the_loop_lets_others_be_served() -> None:
    now, order = 0.0, list[str]()

    def compute() -> None:
        nonlocal now
        now += 0.003
        order.append("compute")

    async def run() -> None:
        turns = Turns(lambda: now)
        computing = asyncio.gather(*(turns.run(compute) for _ in range(20)))
        while not computing.done():
            await asyncio.sleep(0)
            order.append("served")

    asyncio.run(run())
    assert order.count("compute") == 20
    assert max(map(len, "".join(word[0] for word in order).split("s"))) <= 2


ARRAYS = b"[]," * (20 * MIB // 3) + b"[]]}"


def calling(arguments: str) -> bytes:
    """A chat with tools and an earlier call with these arguments."""
    call = {"function": {"name": "f", "arguments": arguments}}
    return json.dumps(chat({"role": "assistant", "tool_calls": [call]}, tools=TOOLS)).encode()


def offering(schema: object) -> bytes:
    """A chat with one tool that takes such an argument."""
    parameters = {"type": "object", "properties": {"a": schema}}
    return json.dumps(chat(tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}])).encode()


HOSTILE = {
    "arrays": b'{"model":"m","x":[' + ARRAYS,
    "arrays as messages": b'{"model":"m","messages":[' + ARRAYS,
    "objects": b'{"model":"m","x":[' + b'{"a":1},' * 125_000 + b"0]}",
    "numbers": b'{"model":"m","x":[' + b"1," * 4_000_000 + b"1]}",
    "one number": b'{"model":"m","x":' + b"9" * 20_000_000 + b"}",
    "depth": b'{"model":"m","x":' + b"[" * 5_000_000,
    "fields": b"{" + b'"a":1,' * 3_000_000 + b'"a":1}',
    "escapes": b'{"model":"m","messages":[{"content":"' + b'\\"' * 10_000_000 + b'"}]}',
    "broken arguments": calling('{"a":[' + "[]," * 1_000_000),
    "arguments": calling('{"a":[' + "[]," * 1_000_000 + "0]}"),
    "alternatives": offering({"anyOf": [{"$ref": "#/properties/a"}] * 8_000}),
    "few alternatives": offering({"anyOf": [{"$ref": "#/properties/a"}] * 2_000}),
    "an image": json.dumps(chat({"content": [{"image_url": {"url": IMAGE * 40}}]}, tools=TOOLS)).encode(),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_no_body_keeps_the_loop_from_others_for_long(shape: str) -> None:
    """In processor time of the loop's thread between any two of its turns: what else the machine does is left out."""

    async def run() -> float:
        app = endpoint(_Engine(), Bodies(64 * MIB, 64 * MIB))
        asking = asyncio.ensure_future(ask(app, pieces_of(HOSTILE[shape])))
        longest, before = 0.0, time.thread_time()
        while not asking.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now
        await asking
        return longest

    # the best of a few: a processor that others use as well runs slower, by its own time too
    assert any(asyncio.run(run()) < 0.05 for _ in range(5))


MEMORY = """
import asyncio, resource, sys
from supervisor.errors import SupervisorError
from supervisor.proxy.bodies import Bodies, read_json

async def read(head, piece, count):
    pieces = iter([head] + [piece] * count + [b'"}]}' if head.endswith(b'"') else b"0]}"])
    async def receive():
        body = next(pieces, None)
        return {"type": "http.request", "body": body or b"", "more_body": body is not None}
    with Bodies(1 << 28, 1 << 28).room() as room:
        try:
            await read_json(receive, room, None)
        except SupervisorError as error:
            assert error.code == "payload_too_large", error
        return room.size

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

asyncio.run(read(b'{"x": [', b"1," * 40_000, 10))
before = peak()
size = asyncio.run(read(*{0}))
print(size, peak() - before)
"""


@pytest.mark.parametrize(
    "pieces",
    [
        (b'{"messages": [{"content": "', b"x" * 65536, 1000),
        (b'{"x": [', b"[]," * 20_000, 1000),
        (b'{"x": [', b"1," * 30_000, 250),
    ],
    ids=["a text", "arrays", "numbers"],
)
def test_a_body_takes_its_own_size_of_memory(pieces: tuple[bytes, bytes, int]) -> None:
    code = MEMORY.replace("{0}", repr(pieces))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    size, grown = map(int, done.stdout.split())
    assert grown < 1.5 * size + 8 * MIB


def test_a_body_over_the_limit_is_refused_by_what_it_says_or_sends() -> None:
    async def run(declared: int | None) -> ClientJson:
        async def receive() -> Message:
            return {"type": "http.request", "body": b" " * MIB, "more_body": True}

        with Bodies(2 * MIB, 2 * MIB, ("server.max_body_mib", "server.max_buffered_mib")).room() as room:
            return await read_json(receive, room, declared)

    for declared in (None, 2 * MIB + 1):
        with pytest.raises(PayloadTooLarge, match=r"larger than 2 MiB.*max_body_mib"):
            asyncio.run(run(declared))
