"""Options that come with a load: how long they hold, and what takes them back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, start_daemon, wait_until
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

# Ends as llama-server does that has another list of options than its --help, or no memory, by the number of slots
PICKY = """#!/bin/sh
before=
for given; do
    if [ "$before" = --parallel ]; then case "$given" in
    6) echo "error: invalid argument: --parallel" >&2; exit 1;;
    7) echo "0.1 E ggml_gallocr_reserve_n_impl: failed to allocate CPU buffer of size 268435456" >&2; exit 1;;
    8) echo "nobody knows these words" >&2; exit 1;;
    9) echo "0.1 E llama_model_load: error loading model: unknown model architecture: 'llama'" >&2; exit 1;;
    esac; fi
    before=$given
done
exec {engine} "$@"
"""


@pytest.fixture
def picky(engine_binary: Path, tmp_path: Path) -> Path:
    """A llama-server that refuses some numbers of slots when it starts."""
    wrapper = tmp_path / "bin" / "llama-server"
    wrapper.parent.mkdir()
    wrapper.write_text(PICKY.format(engine=engine_binary))
    wrapper.chmod(0o755)
    return wrapper


@pytest.fixture
def home() -> Iterator[Path]:
    with scratch_home() as folder:
        yield folder


def settings(talker: Path, **more: Any) -> dict[str, Any]:
    return {"models": {"m": {"file": str(talker), "parallel": 1, "ctx_size": 4096, "aliases": ["other"], **more}}}


def shape(daemon: RunningDaemon, model: str = "m") -> tuple[int, int]:
    """Context and slots, once it has answered."""
    answer = daemon.chat(model, "Hi", max_tokens=1)
    assert answer.status_code == 200, answer.text
    status = daemon.model(model)
    return status["n_ctx"], status["n_slots"]


def load(daemon: RunningDaemon, **body: Any) -> tuple[int, int]:
    answer = daemon.http.post("/api/v1/models/load", json={"target": "m", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["n_ctx"], answer.json()["n_slots"]


def refused(daemon: RunningDaemon, **options: Any) -> str:
    answer = daemon.http.post("/api/v1/models/load", json={"target": "m", "options": options})
    assert answer.status_code >= 400
    code: str = answer.json()["error"]["code"]
    return code


def test_they_hold_until_the_model_is_unloaded(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, settings(talker)) as daemon:
        assert load(daemon, options={"ctx_size": 2048}) == (2048, 1)
        assert load(daemon) == (2048, 1)
        assert load(daemon, options={"parallel": 2}) == (1024, 2)
        assert daemon.model("m")["given"] == {"ctx_size": 2048, "parallel": 2}
        os.kill(daemon.model("m")["pid"], signal.SIGKILL)
        wait_until(lambda: daemon.model("m")["state"] != "ready", "the engine is gone")
        assert shape(daemon) == (1024, 2)
        unloaded = daemon.http.post("/api/v1/models/unload", json={"model": "other"}).json()
        assert (unloaded["state"], unloaded["given"]) == ("unloaded", {})
        assert shape(daemon) == (4096, 1)


def test_they_outlast_idleness(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, settings(talker, ttl=1)) as daemon:
        load(daemon, options={"ctx_size": 2048})
        wait_until(lambda: daemon.model("m")["state"] == "unloaded", "it is idle")
        assert shape(daemon) == (2048, 1)


def test_a_model_of_a_path_goes_back_to_the_defaults(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, {"defaults": {"ctx_size": 4096, "parallel": 1}}) as daemon:
        assert daemon.load(str(talker), parallel=2)["n_slots"] == 2
        daemon.http.post("/api/v1/models/unload", json={"model": "talker"})
        assert shape(daemon, "talker") == (4096, 1)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/models/unload", {"model": "m"}),
        ("GET", "/unload", None),
        ("POST", "/api/models/unload", None),
        ("POST", "/api/models/unload/m", None),
    ],
)
def test_other_programs_ways_to_unload_take_them_back_too(
    home: Path, engine_binary: Path, talker: Path, method: str, path: str, body: Any
) -> None:
    with running_daemon(home, engine_binary, settings(talker)) as daemon:
        load(daemon, options={"ctx_size": 2048})
        assert daemon.http.request(method, path, json=body).status_code == 200
        wait_until(lambda: daemon.model("m")["state"] == "unloaded", "it is unloaded")
        assert daemon.model("m")["given"] == {}


def test_a_load_may_drop_those_of_earlier_ones(home: Path, engine_binary: Path, talker: Path) -> None:
    with running_daemon(home, engine_binary, settings(talker)) as daemon:
        load(daemon, options={"ctx_size": 2048, "parallel": 2})
        for reset, context in ((False, "2048"), (True, "4096")):
            planned = daemon.http.post("/api/v1/plan", json={"target": "m", "reset": reset}).json()
            given = planned["arguments"]
            assert given[given.index("--ctx-size") + 1] == context
        assert load(daemon, options={"parallel": 4}, reset=True) == (1024, 4)
        assert daemon.model("m")["given"] == {"parallel": 4}
        assert load(daemon, reset=True) == (4096, 1)
        before = daemon.model("m")["pid"]
        assert load(daemon, reset=True) == (4096, 1)
        assert daemon.model("m")["pid"] == before


@pytest.mark.parametrize(
    ("slots", "answer", "code"),
    [
        (6, "launch_option_refused", "launch_option_refused"),
        (7, "does_not_fit", "does_not_fit"),
        (8, "model_load_failed", "engine_start_failed"),
    ],
)
def test_those_that_a_load_failed_for_are_taken_back(
    home: Path, picky: Path, talker: Path, slots: int, answer: str, code: str
) -> None:
    with running_daemon(home, picky, settings(talker)) as daemon:
        assert load(daemon, options={"ctx_size": 2048}) == (2048, 1)
        assert refused(daemon, parallel=slots) == answer
        status = daemon.model("m")
        assert (status["state"], status["given"], status["error"]["code"]) == ("failed", {"ctx_size": 2048}, code)
        assert shape(daemon) == (2048, 1)
        assert daemon.model("m")["error"] is None


def test_those_of_a_first_load_too(home: Path, picky: Path, talker: Path) -> None:
    with running_daemon(home, picky, settings(talker)) as daemon:
        assert refused(daemon, parallel=6) == "launch_option_refused"
        assert shape(daemon) == (4096, 1)


def test_what_has_other_reasons_takes_nothing_back(home: Path, picky: Path, talker: Path) -> None:
    with running_daemon(home, picky, settings(talker)) as daemon:
        assert refused(daemon, parallel=9) == "architecture_unknown"
        assert daemon.model("m")["given"] == {"parallel": 9}


def test_the_next_daemon_knows_them(home: Path, engine_binary: Path, talker: Path) -> None:
    kept = {**settings(talker), "restore": True}
    first = start_daemon(home, engine_binary, kept)
    with first.http:
        load(first, options={"ctx_size": 2048})
        first.process.send_signal(signal.SIGTERM)
        first.process.wait(PATIENCE)
    with running_daemon(home, engine_binary, kept) as second:
        wait_until(lambda: second.model("m")["state"] == "ready", "it is loaded again")
        assert (second.model("m")["n_ctx"], second.model("m")["given"]) == (2048, {"ctx_size": 2048})
        second.http.post("/api/v1/models/unload", json={"model": "m"})
        assert shape(second) == (4096, 1)
