"""What an engine gets in the place of addresses, on every way to one; and that it never gets an address."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from supervisor.core.requests.media import FetchRules
from supervisor.core.requests.outline import Payload
from supervisor.core.routes import SERVED
from supervisor.engines.client import EngineResponse
from supervisor.errors import MediaUrlRefused
from supervisor.proxy.bodies import Bodies, ClientJson
from supervisor.proxy.media import Media, check_sent
from supervisor.proxy.relay import RelayEndpoint
from supervisor.proxy.upstream import upstream_endpoint
from tests.proxy.test_bodies import MIB, _Engine, ask, pieces_of, relaying_to
from tests.support.media_server import MediaServer, answer, media_server, png
from tests.support.patience import PATIENCE

RULES = FetchRules("all", (ip_network("127.0.0.1/32"),), most=1 << 20, seconds=PATIENCE)
DATA = "data:image/png;base64," + base64.b64encode(png()).decode()
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
MANY = [[1]] * 70_000  # values that nobody looks into


@pytest.fixture(scope="module")
def server() -> Iterator[MediaServer]:
    with media_server() as running:
        yield running


def app_for(engine: _Engine, bodies: Bodies, path: str, rules: FetchRules) -> ASGIApp:
    relaying = replace(relaying_to(engine, bodies), media=Media(lambda: rules))
    return (
        upstream_endpoint(relaying, lambda: 0)
        if path.startswith("/upstream/")
        else RelayEndpoint(SERVED[path], relaying)
    )


def asked(path: str, body: bytes, rules: FetchRules = RULES) -> tuple[list[Message], list[tuple[str, bytes]]]:
    """What is answered to a request, and what the engine is asked for it."""

    async def run() -> tuple[list[Message], list[tuple[str, bytes]]]:
        engine, bodies = _Engine(), Bodies(64 * MIB, 64 * MIB)
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
        }
        sent = await ask(app_for(engine, bodies, path, rules), pieces_of(body), scope=scope)
        assert bodies.held == 0
        return sent, engine.asked

    return asyncio.run(run())


def engine_gets(path: str, request: dict[str, Any], rules: FetchRules = RULES) -> dict[str, Any]:
    sent, found = asked(path, json.dumps({"model": "m", **request}).encode(), rules)
    assert sent[0]["status"] == 200, sent
    (one,) = found
    parsed: dict[str, Any] = json.loads(one[1])
    assert "127.0.0.1" not in json.dumps(parsed)
    return parsed


def refused(path: str, body: bytes, rules: FetchRules = RULES) -> dict[str, Any]:
    """The error; the engine was asked nothing."""
    sent, found = asked(path, body, rules)
    assert found == []
    error: dict[str, Any] = json.loads(sent[1]["body"])["error"]
    return {**error, "status": sent[0]["status"]}


def chat(*urls: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"stream": True, "messages": [{"role": "user", "content": parts}], **more}


def seen(request: dict[str, Any]) -> list[str]:
    return [part["image_url"]["url"] for message in request["messages"] for part in message["content"]]


@pytest.mark.parametrize("more", [{}, {"tools": TOOLS}], ids=["a chat", "a chat with tools"])
@pytest.mark.parametrize("size", [0, 300_000], ids=["small", "large"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/m/v1/chat/completions"])
def test_a_chat(server: MediaServer, path: str, size: int, more: dict[str, Any]) -> None:
    found = engine_gets(path, chat(server.url(), DATA, server.url(), note="x" * size, **more))
    assert seen(found) == [DATA, DATA, DATA]
    assert found["note"] == "x" * size


def test_one_address_is_fetched_once_for_a_request(server: MediaServer) -> None:
    engine_gets("/v1/chat/completions", chat(*[server.url("/once")] * 3))
    assert [one.path for one in server.asked].count("/once") == 1


def test_responses(server: MediaServer) -> None:
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": server.url()}]}]
    found = engine_gets("/v1/responses", {"input": items})
    assert found["input"][0]["content"][0]["image_url"] == DATA
    found = engine_gets("/v1/responses", {"input": items, "tools": [{"type": "function", "name": "f"}]})
    assert found["messages"][0]["content"][0]["image_url"]["url"] == DATA


def test_messages(server: MediaServer) -> None:
    part = {"type": "image", "source": {"type": "url", "url": server.url()}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [part]}
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    messages = [
        {"role": "user", "content": [part]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    found = engine_gets("/v1/messages", {"messages": messages})
    assert json.dumps(found).count(DATA) == 2
    found = engine_gets("/upstream/m/v1/messages/count_tokens", {"messages": messages[:1]})
    expected = {"type": "base64", "media_type": "image/png", "data": DATA.partition(",")[2]}
    assert found["messages"][0]["content"][0]["source"] == expected


SECRET = "http://127.0.0.1:1/inside"


@pytest.mark.parametrize("path", ["/v1/messages", "/upstream/m/v1/messages"])
@pytest.mark.parametrize("source", [{"url": SECRET}, {"type": "file", "url": SECRET}, {"type": "URL", "url": SECRET}])
def test_a_source_of_another_type_is_no_address(path: str, source: dict[str, Any]) -> None:
    part = {"type": "image", "source": source}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [part]}
    for more in ({}, {"tools": [{"name": "f", "input_schema": {}}]}):
        request = {"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, part, result]}], **more}
        _, found = asked(path, json.dumps({"model": "m", **request}).encode())
        assert "inside" not in json.dumps([json.loads(body) for _, body in found])


@pytest.mark.parametrize("more", [{}, {"tools": TOOLS}], ids=["a chat", "a chat with tools"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/m/v1/chat/completions"])
def test_a_message_that_looks_like_a_part_is_looked_into(path: str, more: dict[str, Any]) -> None:
    request = chat(SECRET, **more)
    request["messages"][0] |= {"type": "image_url", "image_url": DATA}
    error = refused(path, json.dumps({"model": "m", **request}).encode(), FetchRules())
    assert (error["code"], error["param"]) == ("media_url_refused", "messages.0.content.0.image_url.url")


def test_what_a_request_becomes_names_no_media_that_nobody_fetched() -> None:
    text = json.dumps({"messages": []}).encode()
    body = ClientJson(text, {"messages": []}, len(text), Bodies(MIB, MIB))
    became = chat(SECRET)
    with pytest.raises(MediaUrlRefused) as raised:
        check_sent(body, json.dumps(became).encode(), became)
    assert raised.value.param == "messages.0.content.0.image_url.url"
    check_sent(body, json.dumps(chat(DATA)).encode(), chat(DATA))
    check_sent(body, text, became)  # the client's own, which has been looked at


def test_sound(server: MediaServer) -> None:
    server.answers["/a.wav"] = lambda handler: answer(handler, b"RIFF", kind="audio/x-wav")
    part = {"type": "input_audio", "input_audio": {"data": server.url("/a.wav"), "format": "wav"}}
    found = engine_gets("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}], "stream": True})
    heard = found["messages"][0]["content"][0]["input_audio"]
    assert heard == {"data": "data:audio/x-wav;base64,UklGRg==", "format": "wav"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/embeddings",
        "/apply-template",
        "/v1/chat/completions/input_tokens",
        "/upstream/m/v1/embeddings",
        "/upstream/m/x",
    ],
)
def test_paths_that_generate_nothing(server: MediaServer, path: str) -> None:
    part = {"type": "image_url", "image_url": {"url": server.url()}}
    parts = [part, {"type": "text", "text": "behind it"}]
    found = engine_gets(path, {"input": [{"content": parts}], "messages": [{"content": parts}]})
    assert found["input"][0]["content"][0]["image_url"]["url"] == DATA
    assert found["messages"][0]["content"][0]["image_url"]["url"] == DATA


def test_a_request_without_addresses_is_passed_on_as_it_came() -> None:
    body = b'{"model": "m", "note":  "http://127.0.0.1/", "stream": true, "return_progress": true, "messages": [ ]}'
    for path in ("/v1/chat/completions", "/upstream/m/v1/chat/completions", "/upstream/m/x"):
        _, ((_, found),) = asked(path, body)
        assert found == body


def test_a_long_address_in_a_large_request_is_seen_whole(server: MediaServer) -> None:
    url = server.url("/long?" + "q" * 2000)
    assert seen(engine_gets("/v1/chat/completions", chat(url, note="x" * 300_000))) == [DATA]
    too_long = json.dumps({"model": "m", **chat(server.url("/" + "q" * 5000), note="x" * 300_000)}).encode()
    assert refused("/v1/chat/completions", too_long)["code"] == "media_url_refused"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://10.0.0.1/", "http://127.0.0.2/", "httpx", "HTTP://[::1]/"]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/m/v1/chat/completions", "/upstream/m/x"])
def test_other_addresses_are_refused(path: str, url: str) -> None:
    error = refused(path, json.dumps({"model": "m", **chat(url)}).encode())
    assert (error["status"], error["code"]) == (400, "media_url_refused")
    assert error["param"] == "messages.0.content.0.image_url.url"


def test_too_many_addresses_are_refused(server: MediaServer) -> None:
    urls = [server.url(f"/{number}") for number in range(33)]
    assert (
        refused("/v1/chat/completions", json.dumps({"model": "m", **chat(*urls)}).encode())["code"]
        == "media_url_refused"
    )


def test_media_are_fetched_beside_the_loop_that_relays(server: MediaServer) -> None:
    """What a server sends makes steps long, and others would wait for each."""
    threads: list[int] = []

    async def resolve(host: str) -> Sequence[str]:
        threads.append(threading.get_ident())
        return ("127.0.0.1",)

    async def run() -> int:
        body = json.dumps(chat(server.url())).encode()
        bodies = Bodies(MIB, MIB)
        with bodies.room() as room:
            request = ClientJson(body, json.loads(body), len(body), bodies)
            await Media(lambda: RULES, resolve).put_in(request, room)
        return threading.get_ident()

    own = asyncio.run(run())
    assert len(threads) == 1
    assert own not in threads


def test_a_client_that_leaves_ends_the_fetching() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def resolve(host: str) -> Sequence[str]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ()

    async def run() -> None:
        body = json.dumps(chat("http://example.invalid/")).encode()
        bodies = Bodies(MIB, MIB)
        with bodies.room() as room:
            request = ClientJson(body, json.loads(body), len(body), bodies)
            fetching = asyncio.ensure_future(Media(lambda: RULES, resolve).put_in(request, room))
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            fetching.cancel()
            await asyncio.wait([fetching])
        assert await asyncio.to_thread(ended.wait, PATIENCE)

    asyncio.run(run())


def test_media_count_as_a_part_of_the_body(server: MediaServer) -> None:
    """What is fetched takes memory as what is sent does, and is bounded with it."""
    server.answers["/large"] = lambda handler: answer(handler, b"x" * (1 << 20))
    rules = replace(RULES, most=2 << 20)

    async def run() -> list[Message]:
        engine, bodies = _Engine(), Bodies(1 << 20, 1 << 20)
        body = json.dumps({"model": "m", **chat(server.url("/large"))}).encode()
        sent = await ask(app_for(engine, bodies, "/v1/chat/completions", rules), pieces_of(body))
        assert (engine.asked, bodies.held) == ([], 0)
        return sent

    assert asyncio.run(run())[0]["status"] == 413


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{"content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}]}], "x": 1'
        + b"0" * 5000
        + b"}",
        b'{"messages": [{"content": [{"type": "im\\u0061ge_url", "im\\u0061ge_url": "http://a/"}]}], "x": NaN}',
        b'{"messages": [{"content": [{"type": "image_url", "image_url": "http://a"}]}], "x": '
        + b"[" * 600
        + b"]" * 600
        + b"}",
        b'--x\r\ncontent-disposition: form-data; name="images"\r\n\r\nhttp://127.0.0.1/\r\n--x--\r\n',
    ],
    ids=["a number", "an escape", "nesting", "a form"],
)
def test_what_only_an_engine_can_read_may_name_no_media(body: bytes) -> None:
    assert refused("/upstream/m/x", body)["code"] == "invalid_request"


class _Noting(_Engine):
    """An engine that notes as what each body comes."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[str] = []

    def send(
        self, method: str, target: str, body: Payload, content_type: str, more: str = ""
    ) -> AbstractAsyncContextManager[EngineResponse]:
        self.kinds.append(content_type)
        return super().send(method, target, body, content_type)


@pytest.mark.parametrize("path", ["/upstream/m/completion", "/upstream/m/v1/embeddings", "/upstream/m/x"])
@pytest.mark.parametrize("size", [0, 300_000], ids=["small", "large"])
def test_what_was_read_as_json_is_no_form_for_the_engine(path: str, size: int) -> None:
    """A text that the daemon leaves out may hold the parts of a form."""
    form = b"\r\n--x\r\ncontent-disposition: form-data; name=prompt\r\n\r\nhello\r\n--x--\r\n" if size else b""
    body = b'{"prompt": "' + b"x" * size + form + b'", "input": "a"}'
    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}

    async def run() -> list[str]:
        engine, bodies = _Noting(), Bodies(64 * MIB, 64 * MIB)
        await ask(app_for(engine, bodies, path, RULES), pieces_of(body), scope={**scope, "headers": headers})
        assert len(engine.asked) == 1
        return engine.kinds

    assert asyncio.run(run()) == ["application/json"]


def test_parts_that_nobody_looks_into_may_name_no_media(server: MediaServer) -> None:
    part = {"type": "image_url", "image_url": {"url": server.url("/unseen")}}
    hidden = {"model": "m", "stream": True, "messages": [{"role": "user", "content": [part], "x": MANY}]}
    for path in ("/v1/chat/completions", "/upstream/m/v1/chat/completions"):
        assert refused(path, json.dumps(hidden).encode())["code"] == "invalid_request"
    plain = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello", "x": MANY}]}
    sent, found = asked("/v1/chat/completions", json.dumps(plain).encode())
    assert (sent[0]["status"], len(found)) == (200, 1)
    assert "/unseen" not in {one.path for one in server.asked}
