"""What clients see when engines or the daemon die."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.api.conftest import HELLO
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, start_daemon, wait_until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

FORGED = "0.01.000.000 E srv  update_slots: Compute error. off = 0"
LONG_PROMPT = "x " * 10_000  # takes a second to read


@pytest.fixture
def daemon(engine_binary: Path, talker: Path, tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon of its own for every test, with one good model and some that cannot load."""
    garbage = tmp_path / "garbage.gguf"
    garbage.write_bytes(b"GGUF" + b"\xff" * 4096)
    cut_off = tmp_path / "cut-off.gguf"
    cut_off.write_bytes(talker.read_bytes()[:-5000])
    foreign = tmp_path / "foreign.gguf"
    foreign.write_bytes(talker.read_bytes().replace(b"llama", b"lhasa"))  # an architecture that no engine knows
    models = {
        "talker": {"file": str(talker), "parallel": 2, "ctx_size": 8192},
        "reader": {"file": str(talker), "parallel": 1, "ctx_size": 32768},
        "garbage": {"file": str(garbage)},
        "cut-off": {"file": str(cut_off)},
        "foreign": {"file": str(foreign)},
        "absent": {"file": str(tmp_path / "absent.gguf")},
    }
    settings = {"models": models, "engine": {"stop_timeout": 3}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        yield running


def said(answer: str, *, stream: bool) -> str:
    """The text of a chat answer."""
    if not stream:
        text: str = json.loads(answer)["choices"][0]["message"]["content"]
        return text
    chunks = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def endless(*, stream: bool) -> dict[str, object]:
    return {"model": "talker", "stream": stream, "messages": [{"role": "user", "content": "endless"}]}


def test_an_engine_killed_in_mid_stream_ends_the_stream_with_an_error_and_done(daemon: RunningDaemon) -> None:
    with daemon.http.stream("POST", "/v1/chat/completions", json=endless(stream=True)) as answer:
        events = answer.iter_lines()
        assert "delta" in next(events)
        os.kill(daemon.model("talker")["pid"], signal.SIGKILL)
        rest = [line for line in events if line]
    assert rest[-1] == "data: [DONE]"
    error = json.loads(rest[-2].removeprefix("data: "))["error"]
    assert error["code"] == "engine_lost"
    assert "signal 9 (SIGKILL)" in error["message"]
    for line in rest[:-2]:
        assert json.loads(line.removeprefix("data: "))["choices"], "only whole events before the error"
    assert daemon.model("talker")["state"] == "failed"
    assert "SIGKILL" in daemon.model("talker")["error"]["message"]
    assert daemon.chat("talker", "Hi").json()["choices"][0]["message"]["content"] == HELLO, "the next request reloads"
    assert daemon.model("talker")["error"] is None


def test_a_line_of_the_log_that_a_client_wrote_ends_no_engine(daemon: RunningDaemon) -> None:
    """llama-server quotes a grammar that it does not understand, line ends and all."""
    pid = daemon.load("talker")["pid"]
    refused = daemon.http.post(
        "/completion", json={"model": "talker", "prompt": "a", "grammar": f"\n{FORGED}\nroot ::= ("}
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    log = "/api/v1/logs?model=talker&lines=500"
    wait_until(lambda: FORGED in daemon.http.get(log).text.splitlines(), "the forged line")
    assert daemon.chat("talker", "Hi").json()["choices"][0]["message"]["content"] == HELLO
    assert daemon.model("talker")["pid"] == pid


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_without_a_byte_is_tried_once_more_on_a_fresh_engine(daemon: RunningDaemon, stream: bool) -> None:
    """SIGSTOP holds the engine, so that the request is taken but not answered when SIGKILL comes."""
    first = daemon.load("talker")["pid"]
    os.kill(first, signal.SIGSTOP)
    answers: list[str] = []
    waiting = threading.Thread(target=lambda: answers.append(daemon.chat("talker", "Hi", stream=stream).text))
    waiting.start()
    wait_until(lambda: daemon.model("talker")["leases"] == 1, "the request holds a lease")
    os.kill(first, signal.SIGKILL)
    waiting.join(PATIENCE)
    assert said(answers[0], stream=stream) == HELLO
    assert daemon.model("talker")["pid"] not in {None, first}
    assert daemon.model("talker")["leases"] == 0


def test_a_stream_whose_head_alone_is_out_goes_on_with_a_fresh_engine(daemon: RunningDaemon) -> None:
    """The head comes while the engine reads the prompt; it is killed before there is an event."""
    body = {"model": "reader", "stream": True, "messages": [{"role": "user", "content": LONG_PROMPT}]}
    first = daemon.load("reader")["pid"]
    with daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        os.kill(first, signal.SIGKILL)
        assert answer.status_code == 200
        assert said(answer.read().decode(), stream=True) == HELLO
    assert daemon.model("reader")["pid"] not in {None, first}


@pytest.mark.parametrize("stream", [True, False])
def test_unload_now_is_not_undone_by_a_request_without_a_byte(daemon: RunningDaemon, stream: bool) -> None:
    engine = daemon.load("talker")["pid"]
    os.kill(engine, signal.SIGSTOP)
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        answer = daemon.chat("talker", "Hi", stream=stream)
        answers.append((answer.status_code, answer.json()["error"]["code"]))
        assert "was stopped while it was answering" in answer.json()["error"]["message"]

    waiting = threading.Thread(target=ask)
    waiting.start()
    wait_until(lambda: daemon.model("talker")["leases"] == 1, "the request holds a lease")
    status = daemon.http.post("/api/v1/models/unload", json={"model": "talker", "now": True}).json()
    waiting.join(PATIENCE)
    assert answers == [(502, "engine_lost")]
    assert status["state"] == daemon.model("talker")["state"] == "unloaded"


def test_an_engine_that_dies_twice_is_an_error(daemon: RunningDaemon) -> None:
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        answer = daemon.http.post("/v1/chat/completions", json=endless(stream=False))
        answers.append((answer.status_code, answer.json()["error"]["code"]))

    waiting = threading.Thread(target=ask)
    waiting.start()
    killed: set[int] = set()
    for _ in range(2):
        wait_until(lambda: daemon.model("talker")["leases"] == 1, "the request holds a lease")
        pid = daemon.model("talker")["pid"]
        assert pid not in killed
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: daemon.model("talker")["pid"] not in killed, "the death is noticed")
    waiting.join(PATIENCE)
    assert answers == [(502, "engine_lost")]


@pytest.mark.parametrize(
    ("model", "status", "code", "told"),
    [
        ("nobody", 404, "model_not_found", "Known models: "),
        ("garbage", 422, "gguf_invalid", ""),
        ("cut-off", 422, "gguf_invalid", "bytes after the file: cut off or damaged"),
        ("foreign", 503, "architecture_unknown", ""),
        ("absent", 422, "model_file_invalid", "absent.gguf"),
    ],
)
def test_what_cannot_be_loaded_says_why(daemon: RunningDaemon, model: str, status: int, code: str, told: str) -> None:
    answer = daemon.chat(model, "Hi")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert told in error["message"]
    if status != 404:
        assert daemon.model(model)["state"] == "failed"
        assert daemon.model(model)["error"]["message"] == error["message"]


def test_a_file_that_the_engine_refuses_comes_with_the_engines_words(daemon: RunningDaemon) -> None:
    error = daemon.chat("foreign", "Hi").json()["error"]
    assert "exit code" in error["message"]
    assert any("unknown model architecture" in line for line in error["log_lines"]), error["log_lines"]


def test_sigkill_of_the_daemon_during_a_stream_leaves_no_process(engine_binary: Path, talker: Path) -> None:
    with scratch_home() as home:
        settings = {"models": {"talker": {"file": str(talker), "ctx_size": 8192}}}
        daemon = start_daemon(home, engine_binary, settings)
        with daemon.http, daemon.http.stream("POST", "/v1/chat/completions", json=endless(stream=True)) as answer:
            assert "delta" in next(answer.iter_lines())
            children = psutil.Process(daemon.pid).children(recursive=True)
            assert children
            daemon.process.kill()
            daemon.process.wait()
            _, alive = psutil.wait_procs(children, timeout=PATIENCE)
            assert not alive


def test_shutting_down_takes_nothing_new_and_asked_again_ends_open_streams_properly(daemon: RunningDaemon) -> None:
    with daemon.http.stream("POST", "/v1/chat/completions", json=endless(stream=True)) as answer:
        events = answer.iter_lines()
        next(events)
        daemon.process.terminate()
        wait_until(lambda: daemon.model("talker")["state"] == "draining", "the stream may go on")
        refused = daemon.chat("talker", "Hi")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        next(events)
        daemon.process.terminate()
        rest = [line for line in events if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["code"] == "engine_lost"
    assert daemon.process.wait(PATIENCE) == 0
    assert not (daemon.home / "endpoint.json").exists()


def test_unload_now_ends_open_streams_and_unload_waits_for_them(daemon: RunningDaemon) -> None:
    with daemon.http.stream("POST", "/v1/chat/completions", json=endless(stream=True)) as answer:
        events = answer.iter_lines()
        next(events)
        unloading = threading.Thread(target=lambda: daemon.http.post("/api/v1/models/unload", json={"model": "talker"}))
        unloading.start()
        wait_until(lambda: daemon.model("talker")["state"] == "draining", "the unload waits for the stream")
        next(events)
        status = daemon.http.post("/api/v1/models/unload", json={"model": "talker", "now": True}).json()
        assert (status["state"], status["pid"]) == ("unloaded", None)
        assert [line for line in events if line][-1] == "data: [DONE]"
        unloading.join(PATIENCE)
        assert not unloading.is_alive()
