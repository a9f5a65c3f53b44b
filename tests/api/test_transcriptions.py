"""Recordings are written down through the daemon as the engine alone does it, from forms of any order and size."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Reply, Script
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.hearing import sound, write_ear
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

SAID = "What is said in the recording."
SCRIPT = Script(name="writer", default=SAID, replies=(Reply("endless", "and on and on, ", endless=True),), n_ctx=131072)
WIDTH = 128  # of a scripted model's embeddings
PATH = "/v1/audio/transcriptions"
PATHS = (PATH, "/audio/transcriptions", f"{PATH}/", f"/upstream/writer{PATH}", "/upstream/writer/audio/transcriptions")
SOUND = sound(1)
MIB = 1 << 20


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that knows `writer`, which hears, and `deaf`, which does not."""
    folder = tmp_path_factory.mktemp("writer")
    write_scripted_gguf(folder / "writer.gguf", SCRIPT)
    file = {"file": str(folder / "writer.gguf"), "ctx_size": 131072, "parallel": 2}
    ear = str(write_ear(folder / "ear.gguf", WIDTH))
    terse = {**file, "mmproj": ear, "sampling": {"n_predict": 2, "temperature": 0, "top_k": 7}}
    hurried = {**file, "mmproj": ear, "max_seconds": 0.2}
    models = {
        "terse": terse,
        "hurried": hurried,
        "writer": {**file, "mmproj": ear, "filters": {"strip": ["odd"]}},
        "deaf": {**file, "mmproj_auto": False},
    }
    settings = {"models": models, "server": {"max_body_mib": 8, "default_model": "writer"}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        running.load("writer")
        yield running


@contextlib.contextmanager
def engine_of(daemon: RunningDaemon, model: str) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=daemon.engine_socket(model))
    with httpx.Client(transport=transport, base_url="http://engine", timeout=PATIENCE) as client:
        yield client


def steady(answer: httpx.Response) -> Any:
    """What two answers to one request have in common; of a stream, its events."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        events = [event.removeprefix("data: ") for event in answer.text.split("\n\n") if event]
        return [event if event == "[DONE]" else _plain(json.loads(event)) for event in events]
    return _plain(answer.json())


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    event.get("usage", {}).pop("input_tokens_details", None)
    return event


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [None, "false", "true"])
def test_it_is_written_down_as_by_the_engine(daemon: RunningDaemon, path: str, stream: str | None) -> None:
    fields = {"model": "writer", **({} if stream is None else {"stream": stream})}
    files = {"file": ("a.wav", SOUND, "audio/wav")}
    with engine_of(daemon, "writer") as engine:
        own = engine.post(PATH, data=fields, files=files)
    answer = daemon.http.post(path, data=fields, files=files)
    assert (answer.status_code, own.status_code) == (200, 200)
    assert answer.headers["content-type"].partition(";")[0] == own.headers["content-type"].partition(";")[0]
    assert steady(answer) == steady(own)
    assert SAID in answer.text


def test_the_model_may_come_after_the_file_or_in_the_query_or_not_at_all(daemon: RunningDaemon) -> None:
    def ask(*parts: tuple[str, tuple[str | None, bytes]], **query: str) -> Any:
        return daemon.http.post(PATH, params=query, files=parts).json()

    file = ("file", ("a.wav", SOUND))
    assert ask(file, ("model", (None, b"deaf")))["error"]["code"] == "not_supported_by_engine"
    assert ask(file, model="deaf")["error"]["code"] == "not_supported_by_engine"
    assert ask(file)["text"] == SAID
    assert ask(file, ("model", (None, b"nobody")))["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("model", "fields", "with_file"),
    [
        ("deaf", {}, True),
        ("writer", {}, False),
        ("writer", {"response_format": "text"}, True),
        ("writer", {"temperature": "warm"}, True),
        ("writer", {"return_progress": "true"}, True),
        ("writer", {"stream": ["true", "true"]}, True),
    ],
)
def test_what_the_engine_refuses_is_refused_in_its_words(
    daemon: RunningDaemon, model: str, fields: dict[str, Any], with_file: bool
) -> None:
    daemon.load(model)
    files = [("file", ("a.wav", SOUND))] if with_file else [("note", ("n.txt", b"no sound"))]
    with engine_of(daemon, model) as engine:
        own = engine.post(PATH, data={"model": model, **fields}, files=files)
    answer = daemon.http.post(PATH, data={"model": model, **fields}, files=files)
    assert answer.status_code == own.status_code
    if own.status_code == 200:
        assert steady(answer) == steady(own)
    else:
        assert answer.json()["error"]["message"].partition(".")[0] == own.json()["error"]["message"].partition(".")[0]


def test_openai_s_client_gets_the_text(daemon: RunningDaemon) -> None:
    with OpenAI(base_url=f"{daemon.url}/v1", api_key="none", timeout=PATIENCE) as client:
        whole = client.audio.transcriptions.create(model="writer", file=("a.wav", SOUND))
        assert whole.text == SAID
        events = list(client.audio.transcriptions.create(model="writer", file=("a.wav", SOUND), stream=True))
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == SAID


def test_filters_count_for_forms(daemon: RunningDaemon) -> None:
    refused = daemon.http.post(PATH, data={"n": "2"}, files={"file": SOUND})
    assert refused.status_code == 400
    assert daemon.http.post(PATH, data={"odd": "2"}, files={"file": SOUND}).json()["text"] == SAID


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_model_s_defaults_count_for_forms(daemon: RunningDaemon, stream: str) -> None:
    def said(**fields: str) -> str:
        answer = daemon.http.post(PATH, data={"model": "terse", "stream": stream, **fields}, files={"file": SOUND})
        assert answer.status_code == 200, answer.text
        text = answer.text.partition("transcript.text.done")[2] if stream == "true" else answer.text
        return text

    assert SAID not in said()
    assert SAID in said(max_tokens="1000")


def test_a_transcription_that_takes_too_long_is_ended(daemon: RunningDaemon) -> None:
    asked = {"model": "hurried", "prompt": "endless"}
    answer = daemon.http.post(PATH, data=asked, files={"file": SOUND})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "time_limit")


def test_a_large_form_passes_and_a_larger_one_does_not(daemon: RunningDaemon) -> None:
    def ask(size: int) -> httpx.Response:
        return daemon.http.post(PATH, data={"model": "writer"}, files={"more": bytes(size), "file": SOUND})

    assert ask(7 * MIB).json()["text"] == SAID
    answer = ask(8 * MIB)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")


@pytest.mark.parametrize("path", [PATH, f"/upstream/writer{PATH}"])
@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary=x"])
def test_what_is_no_form_is_refused(daemon: RunningDaemon, path: str, kind: str) -> None:
    answer = daemon.http.post(path, content=b'{"model": "writer"}', headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert "form" in answer.json()["error"]["message"]


@contextlib.contextmanager
def endless(daemon: RunningDaemon, path: str, stream: str | None) -> Iterator[socket.socket]:
    """Ask for an answer that does not end, over a connection that is closed at the end of the block."""
    fields = {"prompt": "endless", **({} if stream is None else {"stream": stream})}
    request = httpx.Request("POST", f"{daemon.url}{path}", data=fields, files={"file": SOUND})
    body = request.read()
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    host, port = daemon.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        yield connection


@pytest.mark.parametrize("path", [PATH, f"/upstream/writer{PATH}"])
@pytest.mark.parametrize("stream", [None, "false", "true"])
def test_a_client_that_leaves_frees_its_slot_beside_another_one(
    daemon: RunningDaemon, path: str, stream: str | None
) -> None:
    with endless(daemon, PATH, "true") as other:
        assert b"200 OK" in other.recv(65536)
        with endless(daemon, path, stream):
            wait_until(lambda: daemon.busy_slots("writer") == 2, "the request reaches a slot")
        wait_until(lambda: daemon.busy_slots("writer") == 1, "the slot is free")
    wait_until(lambda: daemon.busy_slots("writer") == 0, "the other slot is free")
    assert daemon.model("writer")["leases"] == 0
