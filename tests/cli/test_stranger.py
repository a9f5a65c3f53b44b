"""A daemon that a user named by URL and that is none: whatever it answers, the command ends with a word about it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import supervisor
from supervisor.cli import client as client_module
from supervisor.cli.client import Client
from supervisor.errors import DaemonError, UsageError
from tests.cli.conftest import Cli

STATUS = {
    "pid": 1,
    "version": supervisor.__version__,
    "models": [{"id": "m", "state": "ready"}],
    "config": {},
    "engine": {"path": "/x"},
}


@contextmanager
def stranger(answer: bytes, kind: str = "application/json") -> Iterator[str]:
    """Answers the status as a daemon would, everything else with `answer`, and closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                told = json.dumps(STATUS).encode() if b"/status" in connection.recv(65_536) else answer
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + kind.encode() + b"\r\n\r\n"
                )
                connection.sendall(told)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


@pytest.mark.parametrize("event", [b"no JSON", b"[1]", b"[" * 100_000, b"\xff"])
@pytest.mark.parametrize("words", [("chat", "m", "-m", "hello"), ("load", "m"), ("pull", "a/b")])
def test_an_event_that_is_none(cli: Cli, event: bytes, words: tuple[str, ...]) -> None:
    with stranger(b"data: " + event + b"\n\n", "text/event-stream") as url:
        shown = cli(*words, "--url", url)
    assert shown.code != 0
    assert "is not this program's daemon" in shown.err or "A piece of the answer is" in shown.err
    assert "bug in the program" not in shown.err


def test_an_answer_that_is_nested_too_deeply() -> None:
    with stranger(b"[" * 100_000) as url, pytest.raises(DaemonError, match="is not this program's daemon"):
        Client(url).get("/api/v1/devices")


def test_answers_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_LONGEST_ANSWER", 1000)
    monkeypatch.setattr(client_module, "_LONGEST_LINE", 1000)
    with stranger(b" " * 2000 + b"{}") as url, pytest.raises(DaemonError, match="is not this program's daemon"):
        Client(url).get("/api/v1/devices")
    with stranger(b"x" * 2000) as url, pytest.raises(DaemonError, match="is not this program's daemon"):
        list(Client(url).lines("/api/v1/logs", {}))
    with stranger(b"data: x\n" * 2000) as url, pytest.raises(DaemonError, match="is not this program's daemon"):
        list(Client(url).events("/v1/chat/completions", {}))


@pytest.mark.parametrize("key", ["a-secret\n", "a-secret\r\nx: y", "a-secret\x00", "a-secret-\u20ac"])
def test_a_key_that_no_header_can_hold_is_not_quoted(key: str) -> None:
    with pytest.raises(UsageError, match="cannot be sent") as caught:
        Client("http://127.0.0.1:1", key)
    assert "a-secret" not in caught.value.message


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://a b:80", "http://a\x7f:80", "http://127.0.0.1:1/a b", "http://a:0"]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="is not the URL of a daemon"):
        Client(url)


def test_an_address_whose_name_is_none() -> None:
    with pytest.raises(UsageError, match="names no host"):
        Client(f"http://{'a' * 70}.example").get("/health")


def test_a_password_in_an_address_is_not_shown() -> None:
    assert Client("http://me:secret@127.0.0.1:1/p/").url == "http://127.0.0.1:1/p"
    with pytest.raises(UsageError) as caught:
        Client("http://me:secret@:1")
    assert "secret" not in caught.value.message
