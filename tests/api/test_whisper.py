"""whisper.cpp's own server as a command engine, beside the llama.cpp models."""

from __future__ import annotations

import io
import math
import struct
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.whisper import require_whisper

RATE = 16_000
PATH = "/v1/audio/transcriptions"


def tone(seconds: float = 1.0) -> bytes:
    """A WAV file, 16 bit mono, of a tone."""
    count = int(RATE * seconds)
    samples = [int(8000 * math.sin(2 * math.pi * 440 * n / RATE)) for n in range(count)]
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(struct.pack(f"<{count}h", *samples))
    return file.getvalue()


@pytest.fixture(scope="module")
def daemon(engine_binary: object) -> Iterator[RunningDaemon]:
    found = require_whisper()
    where = ("--host", "127.0.0.1", "--port", "${PORT}", "--inference-path", PATH)
    whisper = {
        "source": "command",
        "command": [str(found.server), "-m", str(found.model), "-t", "1", *where],
        "memory": {"CPU": "256MiB"},
        "apis": [PATH],
        "slots": 1,
    }
    settings = {"models": {"whisper": whisper, "demo": {"source": "demo"}}}
    with scratch_home() as home, running_daemon(home, found.server, settings) as running:
        yield running


@pytest.fixture
def client(daemon: RunningDaemon) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0)


def test_a_transcription_by_the_official_client(client: openai.OpenAI, daemon: RunningDaemon) -> None:
    said = client.audio.transcriptions.create(model="whisper", file=("a.wav", tone()))
    assert isinstance(said.text, str)
    assert daemon.model("whisper")["state"] == "ready"


@pytest.mark.parametrize(("form", "begins"), [("vtt", "WEBVTT"), ("verbose_json", '{"')])
def test_its_other_forms_come_as_they_are(daemon: RunningDaemon, form: str, begins: str) -> None:
    data = {"model": "whisper", "response_format": form}
    answer = daemon.http.post(PATH, data=data, files={"file": ("a.wav", tone(2.0))})
    assert answer.status_code == 200, answer.text
    assert answer.text.lstrip().startswith(begins)


def test_it_answers_one_at_a_time_and_the_others_wait(daemon: RunningDaemon) -> None:
    def ask(_: int) -> int:
        return daemon.http.post(PATH, data={"model": "whisper"}, files={"file": ("a.wav", tone())}).status_code

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [200] * 4
    assert daemon.model("whisper")["waiting"] == 0


def test_its_errors_come_in_our_form(daemon: RunningDaemon) -> None:
    answer = daemon.http.post(PATH, data={"model": "whisper"}, files={"other": ("a.wav", tone())})
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["message"]
    assert error["type"] == "invalid_request_error"


def test_what_it_does_not_answer_is_refused_by_name(daemon: RunningDaemon) -> None:
    answer = daemon.chat("whisper", "Hi")
    assert answer.json()["error"]["code"] == "not_supported_by_engine"


def test_what_it_holds_is_measured(daemon: RunningDaemon) -> None:
    daemon.load("whisper")
    plan = daemon.http.post("/api/v1/plan", json={"target": "whisper"}).json()
    assert plan["fits"], plan
    held = daemon.model("whisper")["footprint"]
    assert held is None or 0 < held["CPU"] < 1 << 30
