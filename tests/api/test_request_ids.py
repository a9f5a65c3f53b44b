"""Every response names its request: in its head, in the log, in the list of requests, by which it can be ended."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

OURS = re.compile(r"req_[0-9a-f]{24}")
OWN = "trace-7f.3:x"
ENDLESS = {"model": "talker", "messages": [{"role": "user", "content": "endless"}], "stream": True}


def named(answer: httpx.Response) -> str:
    """The id in the head, which stands there once."""
    (found,) = answer.headers.get_list("x-request-id")
    return found


def raw(daemon: RunningDaemon, request: bytes) -> bytes:
    """The answer to something that need not be HTTP."""
    host, port = daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def log_of(daemon: RunningDaemon) -> str:
    return (daemon.home / "daemon-output.log").read_text()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", "/health"), ("HEAD", "/health"), ("GET", "/v1/models"), ("GET", "/nowhere"), ("GET", "/docs")),
        *(("GET", "/api/v1/status"), ("GET", "/upstream/talker/health"), ("GET", "/upstream/nobody/health")),
        *(("POST", "/v1/chat/completions"), ("POST", "/v1/messages"), ("OPTIONS", "/v1/models")),
    ],
)
def test_every_response_has_an_id_and_keeps_the_clients(daemon: RunningDaemon, method: str, path: str) -> None:
    assert OURS.fullmatch(named(daemon.http.request(method, path)))
    assert named(daemon.http.request(method, path, headers={"X-Request-Id": OWN})) == OWN
    assert OURS.fullmatch(named(daemon.http.request(method, path, headers={"x-request-id": "a b"})))


def test_two_requests_of_one_connection_have_two_ids(daemon: RunningDaemon) -> None:
    asked = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    said = raw(daemon, asked + b"X-Request-Id: first\r\n\r\n" + asked + b"Connection: close\r\n\r\n")
    assert re.findall(rb"x-request-id: (\S+)", said)[0] == b"first"
    assert re.findall(rb"x-request-id: req_[0-9a-f]{24}\r\n", said)


@pytest.mark.parametrize(
    "request_",
    [b"nonsense\r\n\r\n", b"GET /%b HTTP/1.1\r\n\r\n" % (b"x" * 70_000), b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n"],
)
def test_a_request_that_is_refused_at_the_door_has_one(daemon: RunningDaemon, request_: bytes) -> None:
    said = raw(daemon, request_.replace(b"evil\r\n", b"evil\r\nConnection: close\r\n"))
    assert re.search(rb"\r\nx-request-id: req_[0-9a-f]{24}\r\n", said)


def test_a_stream_to_an_old_client_has_one(daemon: RunningDaemon) -> None:
    body = b'{"model": "talker", "stream": true, "messages": [{"role": "user", "content": "hello"}]}'
    head = b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nX-Request-Id: old\r\nContent-Length: %d\r\n\r\n"
    said = raw(daemon, head % len(body) + body)
    assert (b"\r\nx-request-id: old\r\n" in said, said.endswith(b"data: [DONE]\n\n")) == (True, True)


def test_anthropics_clients_find_it_where_they_look(daemon: RunningDaemon) -> None:
    answer = daemon.http.post("/v1/messages", json={"model": "nobody"}, headers={"x-request-id": OWN})
    assert (named(answer), answer.headers["request-id"]) == (OWN, OWN)
    assert answer.json()["request_id"] == OWN
    framework = daemon.http.get("/v1/messages")
    assert framework.json()["request_id"] == framework.headers["request-id"] == named(framework)
    assert "request-id" not in daemon.http.get("/health").headers


def test_the_log_says_which_request_a_line_is_of(daemon: RunningDaemon) -> None:
    daemon.http.post("/api/v1/logs/level", json={"level": "info"}, headers={"x-request-id": "sets-the-level"})
    (told,) = [line for line in log_of(daemon).splitlines() if " log_level " in line]
    assert "request_id=sets-the-level" in told


def test_a_line_of_an_engine_names_the_request_that_it_was_begun_for_only_while_that_lasts(
    daemon: RunningDaemon,
) -> None:
    asked = {"target": "chatter", "options": {}}
    assert daemon.http.post("/api/v1/models/load", json=asked, headers={"x-request-id": "loads"}).is_success
    assert daemon.http.post("/api/v1/models/unload", json={"model": "chatter"}).is_success
    lines = [line for line in log_of(daemon).splitlines() if "model=chatter" in line]
    assert any("engine_ready" in line and "request_id=loads" in line for line in lines)
    ended = lines[next(at for at, line in enumerate(lines) if "engine_stop" in line) :]
    assert not any("request_id=loads" in line for line in ended)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/upstream/talker/v1/chat/completions"])
def test_the_engine_s_log_names_the_request_before_the_engine_s_own_lines_of_it(
    daemon: RunningDaemon, path: str
) -> None:
    daemon.load("talker")
    body = {"model": "talker", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    name = f"noted{path.count('/')}"
    assert daemon.http.post(path, json=body, headers={"x-request-id": name}).is_success

    def lines() -> list[str]:
        return daemon.http.get("/api/v1/logs", params={"model": "talker", "lines": 500}).text.splitlines()

    wait_until(lambda: any("release" in line for line in after(lines(), name)), "the engine tells that it is done")
    (noted,) = [line for line in lines() if name in line]
    assert re.fullmatch(rf"\d{{4}}-[\d:.T-]+Z supervisor: request {name} to engine \d+: {path}", noted)
    assert any("launch_slot_" in line for line in after(lines(), name))


def after(lines: list[str], name: str) -> list[str]:
    """The lines that follow the one with that name."""
    at = next(number for number, line in enumerate(lines) if name in line)
    return lines[at + 1 :]


def test_a_request_is_listed_and_ended_by_its_id(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    with daemon.http.stream("POST", "/v1/chat/completions", json=ENDLESS, headers={"x-request-id": OWN}) as answer:
        arriving = answer.iter_text()
        next(arriving)
        (one,) = daemon.http.get("/api/v1/requests").json()["requests"]
        assert (one["request_id"], one["state"]) == (OWN, "running")
        ended = daemon.http.delete(f"/api/v1/requests/{OWN}")
        assert (ended.status_code, ended.json()["id"]) == (200, one["id"])
        assert "request_cancelled" in "".join(arriving)
    assert daemon.http.delete(f"/api/v1/requests/{OWN}").status_code == 404


def test_all_requests_of_one_id_are_ended(daemon: RunningDaemon) -> None:
    daemon.load("talker")
    answers: list[httpx.Response] = []

    def ask() -> None:
        body: dict[str, Any] = {**ENDLESS, "stream": False, "max_tokens": 100_000}
        answers.append(daemon.http.post("/v1/chat/completions", json=body, headers={"x-request-id": "twice"}))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for one in threads:
        one.start()
    wait_until(lambda: daemon.busy_slots("talker") == 2, "both are answered")
    assert daemon.http.delete("/api/v1/requests/twice").status_code == 200
    for one in threads:
        one.join(PATIENCE)
    assert [one.status_code for one in answers] == [499, 499]


def test_a_conversation_s_id_does_not_reach_the_engine(engine_binary: Path, talker: Path) -> None:
    """With `X-Conversation-Id` llama-server would go on for a client that has left, so that it can come back."""
    models = {"talker": {"file": str(talker), "parallel": 2, "ctx_size": 65536}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        daemon.load("talker")
        for path in ("/v1/chat/completions", "/upstream/talker/v1/chat/completions"):
            headers = {"x-conversation-id": "c1"}
            with daemon.http.stream("POST", path, json=ENDLESS, headers=headers) as answer:
                arriving = answer.iter_text()  # kept: the answer is closed with it
                next(arriving)
                wait_until(lambda: daemon.busy_slots("talker") == 1, "it is answered")
                asked = daemon.http.post("/upstream/talker/v1/streams/lookup", json={"conversation_ids": ["c1"]})
                assert (asked.status_code, asked.json()) == (200, []), path
            wait_until(lambda: daemon.busy_slots("talker") == 0, "the slot is free")
