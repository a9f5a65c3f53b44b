"""HTTP as clients speak it: over bare sockets, byte by byte, with and without what HTTP lets them leave out."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import psutil
import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, wait_until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

Head: TypeAlias = dict[str, str]

CHAT: dict[str, Any] = {"model": "talker", "messages": [{"role": "user", "content": "Hi"}]}
RESET = struct.pack("ii", 1, 0)  # on: what was not sent is dropped, and the other side hears of it at once
OURS = {
    "date",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "cache-control",
    "x-accel-buffering",
    "x-request-id",
}


@contextlib.contextmanager
def connected(daemon: RunningDaemon) -> Iterator[socket.socket]:
    host, port = daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
        yield client


def request(method: str, path: str, body: bytes = b"", version: str = "1.1", **headers: str) -> bytes:
    """The bytes of a request. Underscores of headers are hyphens."""
    framed = {"host": "localhost", **({"content-length": str(len(body))} if body else {}), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in framed.items()]
    return "\r\n".join([f"{method} {path} HTTP/{version}", *lines, "", ""]).encode() + body


def post(body: Any, path: str = "/v1/chat/completions", **more: Any) -> bytes:
    return request("POST", path, json.dumps(body).encode(), **more)


class Reader:
    """Answers from a connection, one after the other."""

    def __init__(self, client: socket.socket) -> None:
        self._file = client.makefile("rb")

    def head(self) -> tuple[int, Head]:
        status = int(self._file.readline().split()[1])
        lines = iter(self._file.readline, b"\r\n")
        pairs = (line.decode().strip().partition(": ") for line in lines)
        return status, {name.lower(): value for name, _, value in pairs}

    def answer(self, *, bodiless: bool = False) -> tuple[int, Head, bytes]:
        status, head = self.head()
        if bodiless:
            return status, head, b""
        if "content-length" in head:
            return status, head, self._file.read(int(head["content-length"]))
        return status, head, self._chunks() if "transfer-encoding" in head else self._file.read()

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self._file.readline(), 16):
            body += self._file.read(size)
            self._file.readline()
        self._file.readline()
        return body

    def close(self) -> None:
        self._file.close()


@contextlib.contextmanager
def asked(daemon: RunningDaemon, *requests: bytes) -> Iterator[Reader]:
    """What comes after these bytes, each sent by itself."""
    with connected(daemon) as client, contextlib.closing(Reader(client)) as reader:
        for one in requests:
            client.sendall(one)
        yield reader


def said(body: bytes) -> str:
    """The text of a chat's answer, streamed or not."""
    if body.startswith(b"{"):
        return str(json.loads(body)["choices"][0]["message"]["content"])
    events = [json.loads(one) for one in re.findall(rb"^data: (\{.*)$", body, re.MULTILINE)]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])


@pytest.fixture(scope="module")
def loaded(daemon: RunningDaemon) -> RunningDaemon:
    daemon.load("talker")
    return daemon


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_a_body_may_come_in_chunks(loaded: RunningDaemon, size: int) -> None:
    body = json.dumps(CHAT).encode()
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x;some=thing\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = request("POST", "/v1/chat/completions", transfer_encoding="chunked")
    with asked(loaded, head, chunks + b"0\r\nsome: trailer\r\n\r\n", request("GET", "/health")) as reader:
        assert said(reader.answer()[2]) == HELLO
        assert reader.answer()[2] == b'{"status":"ok"}'


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/upstream/talker/tokenize", "/api/v1/plan"])
@pytest.mark.parametrize("coding", ["gzip", "deflate, br"])
def test_a_compressed_body_is_refused_in_so_many_words(loaded: RunningDaemon, path: str, coding: str) -> None:
    body = gzip.compress(json.dumps(CHAT).encode())
    with asked(loaded, request("POST", path, body, content_encoding=coding)) as reader:
        status, _, answer = reader.answer()
    error = json.loads(answer)["error"]
    assert (status, error["code"]) == (415, "encoding_not_supported")
    assert "Content-Encoding" in error["message"]


def test_an_encoding_that_is_none_and_one_that_the_client_would_take_change_nothing(loaded: RunningDaemon) -> None:
    headers = {"content_encoding": "Identity", "accept_encoding": "gzip, br", "te": "gzip"}
    with asked(loaded, post(CHAT, **headers), post({**CHAT, "stream": True}, **headers)) as reader:
        for _ in range(2):
            status, head, body = reader.answer()
            assert (status, said(body)) == (200, HELLO)
            assert "content-encoding" not in head


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/api/v1/models", "/nowhere", "/props?model=talker"])
def test_head_is_get_without_a_body(loaded: RunningDaemon, path: str) -> None:
    """The connection goes on with the next request, so not a byte of a body came."""
    with asked(loaded, request("HEAD", path), request("GET", path), request("GET", "/health")) as reader:
        status, head, _ = reader.answer(bodiless=True)
        full_status, full_head, _ = reader.answer()
        assert reader.answer()[2] == b'{"status":"ok"}'
    assert status == full_status or path.startswith("/props")
    assert head["content-type"] == full_head["content-type"]


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("/v1/chat/completions", (405, "method_not_allowed")),
        ("/health", (405, "method_not_allowed")),
        ("/nowhere", (404, "route_not_found")),
        ("*", (404, "route_not_found")),
    ],
)
def test_options_that_is_no_preflight_has_an_answer(loaded: RunningDaemon, path: str, refusal: tuple[int, str]) -> None:
    with asked(loaded, request("OPTIONS", path), request("GET", "/health")) as reader:
        status, _, body = reader.answer()
        assert (status, json.loads(body)["error"]["code"]) == refusal
        assert reader.answer()[2] == b'{"status":"ok"}'


def test_who_expects_to_be_told_to_go_on_is_told(loaded: RunningDaemon) -> None:
    whole = post(CHAT, expect="100-continue")
    at = whole.index(b"\r\n\r\n") + 4
    with connected(loaded) as client, contextlib.closing(Reader(client)) as reader:
        client.sendall(whole[:at])
        assert reader.head() == (100, {})
        client.sendall(whole[at:])
        assert said(reader.answer()[2]) == HELLO


def test_who_expects_to_be_told_to_go_on_hears_at_once_that_it_is_no_use(loaded: RunningDaemon) -> None:
    for status, coding, length in ((415, "gzip", "9"), (413, "identity", str(1 << 40))):
        headers = {"content_encoding": coding, "content_length": length, "expect": "100-continue"}
        with asked(loaded, request("POST", "/v1/chat/completions", b"", "1.1", **headers)) as reader:
            assert reader.answer()[0] == status


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_of_http_1_0_gets_no_chunks(loaded: RunningDaemon, stream: bool) -> None:
    with asked(loaded, post({**CHAT, "stream": stream}, version="1.0")) as reader:
        status, head, body = reader.answer()
    assert (status, said(body)) == (200, HELLO)
    assert "transfer-encoding" not in head
    assert head["connection"] == "close"
    assert body.endswith(b"data: [DONE]\n\n") == stream


@pytest.mark.parametrize(
    "path", ["/health", "/v1/models", "/nowhere", "/upstream/talker/health", "/upstream/talker/slots"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_of_http_1_0_gets_everything_else_too(loaded: RunningDaemon, method: str, path: str) -> None:
    with asked(loaded, request(method, path, version="1.0")) as reader:
        _, head, body = reader.answer()
        assert "transfer-encoding" not in head
        assert bool(body) == (method == "GET")
        assert method == "HEAD" or json.loads(body)


def test_a_client_of_http_1_0_that_leaves_frees_its_slot(loaded: RunningDaemon) -> None:
    endless = {**CHAT, "messages": [{"role": "user", "content": "endless"}], "stream": True}
    with connected(loaded) as client:
        client.sendall(post(endless, version="1.0"))
        assert client.recv(1 << 16)
        wait_until(lambda: loaded.busy_slots("talker") == 1, "it is answered")
    wait_until(lambda: loaded.busy_slots("talker") == 0, "its slot is free")
    wait_until(loaded.at_rest, "nothing is in flight")


def test_requests_that_are_sent_ahead_are_answered_in_their_order(loaded: RunningDaemon) -> None:
    ahead = [post({**CHAT, "stream": True}), request("GET", "/health"), post(CHAT), request("GET", "/nowhere")]
    with asked(loaded, b"".join(ahead)) as reader:
        answers = [reader.answer() for _ in ahead]
    assert [status for status, _, _ in answers] == [200, 200, 200, 404]
    assert [said(answers[at][2]) for at in (0, 2)] == [HELLO, HELLO]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/talker/v1/chat/completions", "/upstream/talker/x"])
def test_what_concerns_one_connection_stays_on_it(loaded: RunningDaemon, path: str) -> None:
    """Of an engine's head nothing is passed on but the content type; a client's own words for hops neither."""
    headers = {"keep_alive": "timeout=1", "te": "trailers", "upgrade": "h2c", "proxy_connection": "close"}
    with asked(loaded, post(CHAT, path, connection="keep-alive, x-mine", x_mine="1", **headers)) as reader:
        _, head, _ = reader.answer()
    assert set(head) <= OURS, head
    assert head.get("connection", "close") == "close"


# -- clients that leave


def nothing_left(daemon: RunningDaemon, files: int) -> bool:
    status = daemon.model("talker")
    idle = daemon.at_rest() and daemon.busy_slots("talker") == 0
    return idle and (status["leases"], status["waiting"]) == (0, 0) and open_files(daemon) <= files


def open_files(daemon: RunningDaemon) -> int:
    return psutil.Process(daemon.pid).num_fds()


@pytest.mark.parametrize("abrupt", [True, False], ids=["reset", "closed"])
def test_a_client_may_leave_at_every_byte_of_its_request(loaded: RunningDaemon, abrupt: bool) -> None:
    wait_until(lambda: nothing_left(loaded, 1000), "the tests before are over")
    files, whole = open_files(loaded), post({**CHAT, "stream": True})
    for at in range(len(whole) + 1):
        with connected(loaded) as client:
            client.sendall(whole[:at])
            if abrupt:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    wait_until(lambda: nothing_left(loaded, files), "nothing is left")
    assert loaded.chat("talker", "Hi").status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/upstream/talker/v1/chat/completions"])
def test_a_client_may_leave_at_every_byte_of_an_answer(loaded: RunningDaemon, path: str) -> None:
    wait_until(lambda: nothing_left(loaded, 1000), "the tests before are over")
    files = open_files(loaded)
    asking = post(
        {**CHAT, "messages": [{"role": "user", "content": "endless"}], "max_tokens": 10_000, "stream": True}, path
    )
    for count in (*range(0, 400, 8), *range(400, 4000, 400)):
        with connected(loaded) as client:
            client.sendall(asking)
            left = count
            while left:
                left -= len(client.recv(left))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    wait_until(lambda: nothing_left(loaded, files), "nothing is left")
    assert loaded.chat("talker", "Hi").status_code == 200
