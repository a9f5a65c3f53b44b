"""What one client may take: the size and number of headers, the time of each part of a request, a place."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from supervisor.api.feed import MOST_READERS
from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

NEVER = 600
PATIENT = {"header_timeout": NEVER, "body_timeout": NEVER, "idle_timeout": NEVER}
SMALL = {"max_header_kib": 8, "max_headers": 20}
KIB = 1024
SENT_AT_MOST = 64 << 20  # what the buffers of a connection hold is far less

Answer: TypeAlias = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon that takes small heads only, and has time. No engine is needed."""
    with (
        scratch_home() as home,
        running_daemon(home, Path("/nonexistent"), {"server": {**PATIENT, **SMALL}}) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def hasty() -> Iterator[RunningDaemon]:
    """One that waits a second for what a request still lacks, and long for a further request."""
    settings = {"server": {**PATIENT, "header_timeout": 1, "body_timeout": 1}}
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), settings) as running:
        yield running


@contextlib.contextmanager
def connected(daemon: RunningDaemon) -> Iterator[socket.socket]:
    host, port = daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
        yield client


def read_all(client: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def parsed(raw: bytes) -> Answer:
    """Status and object of the one answer in these bytes."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


def send_until_closed(client: socket.socket, pieces: Iterator[bytes]) -> int:
    """How many bytes were sent before the server took no more."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            client.sendall(piece)
            sent += len(piece)
            assert sent < SENT_AT_MOST, "it takes whatever comes"
    return sent


def refusal(daemon: RunningDaemon, start: bytes, pieces: Iterator[bytes]) -> Answer:
    with connected(daemon) as client:
        client.sendall(start)
        send_until_closed(client, pieces)
        return parsed(read_all(client))


def post(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
CHUNKED = post("/v1/chat/completions", "Transfer-Encoding: chunked")
ENDLESS = {
    "url": (b"GET /", b"a" * 64 * KIB),
    "header name": (b"GET /health HTTP/1.1\r\n", b"a" * 64 * KIB),
    "header value": (b"GET /health HTTP/1.1\r\nx: ", b"a" * 64 * KIB),
    "many headers": (b"GET /health HTTP/1.1\r\n", b"x: y\r\n" * 10_000),
    "empty lines": (b"", b"\r\n" * 32 * KIB),
    "chunk extension": (CHUNKED + b"1;", b"a" * 64 * KIB),
    "trailer value": (CHUNKED + b"0\r\nx: ", b"a" * 64 * KIB),
    "many trailers": (CHUNKED + b"0\r\n", b"x: y\r\n" * 10_000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_has_no_end_is_refused(daemon: RunningDaemon, name: str) -> None:
    start, piece = ENDLESS[name]
    status, answer = refusal(daemon, start, repeat(piece))
    assert (status, answer["error"]["code"]) == (431, "headers_too_large")
    assert "server.max_header_kib" in answer["error"]["message"]


def test_nobody_waits_for_the_body_of_a_get(daemon: RunningDaemon) -> None:
    """No key is needed for /health: whoever sends its body byte by byte would hold a place for ever."""
    for framing in (b"Content-Length: 1000000", b"Transfer-Encoding: chunked"):
        with connected(daemon) as client:
            client.sendall(LAST_HEALTH + framing + b"\r\n\r\n")
            assert parsed(read_all(client)) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/props?model=demo", "/upstream/demo/slots"])
def test_nobody_waits_for_the_body_of_a_get_to_an_engine(daemon: RunningDaemon, path: str) -> None:
    with connected(daemon) as client:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"
        client.sendall(head.encode())
        status, answer = parsed(read_all(client))
    assert (status, answer["error"]["code"]) == (503, "model_not_loaded")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/demo/completion", "/api/v1/models/load"])
def test_a_length_of_thousands_of_digits_is_a_length(daemon: RunningDaemon, path: str) -> None:
    with connected(daemon) as client:
        client.sendall(post(path, "Connection: close", f"Content-Length: {'0' * 5000}2") + b"[]")
        status, answer = parsed(read_all(client))
    assert (status, answer["error"]["code"]) != (500, "internal_error")
    assert status < 500 or path.startswith("/upstream")


@pytest.mark.parametrize("path", ["/props", "/api/v1/status", "/v1/chat/completions", "/upstream/demo/slots"])
def test_a_query_of_very_many_fields_is_not_read(daemon: RunningDaemon, path: str) -> None:
    for fields, refused in ((256, False), (257, True)):
        with connected(daemon) as client:
            query = "&".join(["a"] * fields)
            client.sendall(f"GET {path}?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = read_all(client)
        assert (b"more than 256 fields" in answer) is refused


def lines(count: int, size: int) -> bytes:
    """So many headers of so many bytes, and the end."""
    return b"".join(b"x%03d: " % n + b"y" * (size - 8) + b"\r\n" for n in range(count)) + b"\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (LAST_HEALTH + lines(18, 40), 200),
        (LAST_HEALTH + lines(19, 40), 431),
        (LAST_HEALTH + lines(1, 8000), 200),
        (LAST_HEALTH + lines(1, 8200), 431),
        (b"GET /health?" + b"a" * 8200 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    ],
)
def test_the_limits_are_those_of_the_configuration(daemon: RunningDaemon, head: bytes, status: int) -> None:
    with connected(daemon) as client:
        client.sendall(head)
        assert parsed(read_all(client))[0] == status


def test_a_head_in_pieces_counts_as_one_in_one_piece(daemon: RunningDaemon) -> None:
    head = LAST_HEALTH + lines(19, 40)
    with connected(daemon) as client:
        send_until_closed(client, (head[at : at + 7] for at in range(0, len(head), 7)))
        assert parsed(read_all(client))[0] == 431


def test_the_answer_has_the_form_of_the_path_s_api(daemon: RunningDaemon) -> None:
    status, answer = refusal(daemon, b"POST /v1/messages HTTP/1.1\r\n", repeat(b"x: y\r\n" * 100))
    assert (status, answer["type"], answer["error"]["type"]) == (431, "error", "invalid_request_error")


def test_what_is_no_http_gets_the_envelope_and_no_line_in_the_log(daemon: RunningDaemon) -> None:
    log = daemon.home / "daemon-output.log"
    before = log.read_text()
    for garbage in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"GET * HTTP/9.9\r\n\r\n",
        b"GET \xff\r\n",
    ):
        status, answer = refusal(daemon, garbage, iter(()))
        assert (status, answer["error"]["code"]) == (400, "invalid_request")
    assert log.read_text() == before


@pytest.mark.parametrize(
    "start", [b"G", b"GET / HTTP", b"GET / HTTP/1.1\r\nHost: loc", b"POST /v1/messages HTTP/1.1\r\nHost: a\r\n"]
)
def test_a_head_that_does_not_come_is_given_up(hasty: RunningDaemon, start: bytes) -> None:
    with connected(hasty) as client:
        client.sendall(start)
        status, answer = parsed(read_all(client))
    assert (status, answer["error"].get("code")) == (408, "request_timeout")


def slowly(client: socket.socket) -> Iterator[bytes]:
    """A byte, whenever the server has not answered for 50 ms."""
    client.settimeout(0.05)
    while True:
        try:
            client.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            yield b"x"
        else:
            client.settimeout(PATIENCE)
            return


@pytest.mark.parametrize(
    "start", [b"GET /", b"GET / HTTP/1.1\r\nx: ", post("/v1/chat/completions", "Content-Length: 100000")]
)
def test_a_byte_now_and_then_wins_no_time(hasty: RunningDaemon, start: bytes) -> None:
    with connected(hasty) as client:
        client.sendall(start)
        send_until_closed(client, slowly(client))
        assert parsed(read_all(client))[0] == 408


def test_a_connection_that_asks_nothing_is_closed_without_a_word(hasty: RunningDaemon) -> None:
    with connected(hasty) as client:
        assert read_all(client) == b""


def test_a_connection_without_a_further_request_is_closed() -> None:
    settings = {"server": {**PATIENT, "idle_timeout": 1}}
    with (
        scratch_home() as home,
        running_daemon(home, Path("/nonexistent"), settings) as running,
        connected(running) as client,
    ):
        client.sendall(GET_HEALTH)
        assert parsed(read_all(client)) == (200, {"status": "ok"})


def test_the_second_request_has_its_own_time(hasty: RunningDaemon) -> None:
    with connected(hasty) as client:
        client.sendall(GET_HEALTH)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /health HT")
        assert parsed(read_all(client))[0] == 408


BODIES = ("/v1/chat/completions", "/v1/messages", "/api/v1/models/load", "/models/load", "/upstream/demo/completion")


@pytest.mark.parametrize("path", BODIES)
def test_a_body_that_does_not_come_is_given_up(hasty: RunningDaemon, path: str) -> None:
    for head in (post(path, "Content-Length: 100"), post(path, "Transfer-Encoding: chunked") + b"5\r\n"):
        with connected(hasty) as client:
            client.sendall(head + b'{"')
            status, answer = parsed(read_all(client))
        assert (status, answer["error"]["code"]) == (408, "request_timeout")
        assert ("type" in answer) == (path == "/v1/messages")


def test_a_body_that_nobody_wants_is_not_taken_for_ever(daemon: RunningDaemon) -> None:
    with connected(daemon) as client:
        client.sendall(post("/nowhere", "Transfer-Encoding: chunked"))
        send_until_closed(client, repeat(b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"))


def test_requests_in_a_row_on_one_connection_are_answered(daemon: RunningDaemon) -> None:
    with connected(daemon) as client:
        for _ in range(50):
            client.sendall(GET_HEALTH * 10)
            answers = b""
            while answers.count(b"HTTP/1.1 200 OK") < 10:
                answers += (piece := client.recv(1 << 16))
                assert piece, "the connection stays"
        client.sendall(LAST_HEALTH + b"\r\n")
        assert read_all(client).count(b"HTTP/1.1 200 OK") == 1


def test_requests_that_are_sent_ahead_without_end_end_the_connection(daemon: RunningDaemon) -> None:
    with connected(daemon) as client, contextlib.suppress(ConnectionError):
        client.sendall(GET_HEALTH * 2000)
        assert read_all(client).count(b"HTTP/1.1 200 OK") < 2000
    assert httpx.get(f"{daemon.url}/health", trust_env=False).status_code == 200


# -- places


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may hold more connections than the daemon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("the limit on open files is too low here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost:", post("/nowhere", "Content-Length: 9")])
def test_health_is_answered_beside_a_thousand_connections_that_ask_nothing(start: bytes) -> None:
    with (
        scratch_home() as home,
        running_daemon(home, Path("/nonexistent"), {"server": PATIENT}, open_files=1024) as daemon,
        contextlib.ExitStack() as held,
    ):
        for _ in range(1200):
            client = held.enter_context(connected(daemon))
            with contextlib.suppress(ConnectionError):  # it may have lost its place already
                client.sendall(start)
        for path in ("/health", "/api/v1/status"):
            assert httpx.get(daemon.url + path, timeout=PATIENCE, trust_env=False).status_code == 200
        wait_until(
            lambda: httpx.get(f"{daemon.url}/v1/models", timeout=PATIENCE, trust_env=False).status_code == 200,
            "a place for others, too, once it is seen that those ask nothing",
        )
        assert (home / "daemon-output.log").read_text().count("connections_full") == 1


@contextlib.contextmanager
def busy_connections(daemon: RunningDaemon, count: int) -> Iterator[None]:
    """Connections with a request that is being answered."""
    with contextlib.ExitStack() as held:
        for _ in range(count):
            client = held.enter_context(connected(daemon))
            client.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        yield


def test_management_is_served_where_all_places_are_at_work() -> None:
    settings = {"server": {**PATIENT, "max_connections": 4}}
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), settings) as daemon:
        ask = partial(httpx.get, timeout=PATIENCE, trust_env=False)
        with busy_connections(daemon, 4), contextlib.ExitStack() as held:
            for _ in range(100):
                held.enter_context(connected(daemon))  # they ask nothing, and take the places that are left
            assert ask(daemon.url + "/api/v1/status").status_code == 200
            assert ask(daemon.url + "/health").status_code == 200
            refused = ask(daemon.url + "/v1/models")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_connections")
            assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        assert ask(daemon.url + "/v1/models").status_code == 200
        with busy_connections(daemon, 36), connected(daemon) as client:
            status, answer = parsed(read_all(client))
            assert (status, answer["error"]["code"]) == (503, "too_many_connections")
        assert (home / "daemon-output.log").read_text().count("connections_full") == 1


@pytest.mark.engine
@pytest.mark.usefixtures("many_files")
def test_a_model_is_loaded_beside_a_thousand_connections_that_ask_nothing(engine_binary: Path, talker: Path) -> None:
    settings = {"server": PATIENT, "models": {"talker": {"file": str(talker), "ctx_size": 4096}}}
    with (
        scratch_home() as home,
        running_daemon(home, engine_binary, settings, open_files=1024) as daemon,
        contextlib.ExitStack() as held,
    ):
        for _ in range(1200):
            held.enter_context(connected(daemon))
        answer = daemon.chat("talker", "hello")
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"] == HELLO


@pytest.mark.parametrize("one_more", ["/api/v1/events", "/api/v1/logs?follow=true"])
def test_so_many_read_events_and_no_more(daemon: RunningDaemon, one_more: str) -> None:
    """Of all kinds together: who stops reading keeps what it was told last."""
    paths = ("/api/v1/events", "/models/sse", "/api/v1/logs?follow=true")

    def refused() -> bool:
        with daemon.http.stream("GET", one_more) as answer:
            if answer.status_code == 200:
                return False
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert json.loads(answer.read())["error"]["code"] == "too_many_readers"
            return True

    limits = httpx.Limits(max_connections=MOST_READERS)
    with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False, limits=limits) as http:
        with contextlib.ExitStack() as readers:
            for number in range(MOST_READERS):
                answer = readers.enter_context(http.stream("GET", paths[number % 3]))
                assert answer.status_code == 200
            assert refused()
            assert daemon.http.get("/health").status_code == 200
        wait_until(lambda: not refused(), "those who left are not counted any more")
