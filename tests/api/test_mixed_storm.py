"""llama-server, mlx-lm and commands under one limit of memory, killed at random: all is answered, nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.mlx import require_mlx
from tests.support.patience import PATIENCE
from tests.support.scripted_mlx import write_scripted_mlx

pytestmark = pytest.mark.engine

SERVER = Path(__file__).parents[1] / "fakes" / "openai_server.py"
MODELS = ("talker", "mlx", "one", "two")
REQUESTS = 80
KILLS = 8
ALLOWED = {200, 500, 502, 503}  # whoever is killed twice under a request is told so


@pytest.fixture
def daemon(engine_binary: Path, talker: Path, tmp_path: Path) -> Iterator[RunningDaemon]:
    command = [sys.executable, str(SERVER), "--hold", "64"]
    models: dict[str, Any] = {
        "talker": {"file": str(talker), "parallel": 2, "ctx_size": 4096},
        "mlx": {"file": str(write_scripted_mlx(tmp_path / "mlx", talker)), "parallel": 2, "ctx_size": 1024},
        "one": {"source": "command", "command": [*command, "--socket", "${SOCKET}"], "memory": {"CPU": "300m"}},
        "two": {"source": "command", "command": [*command, "--port", "${PORT}"], "memory": {"CPU": "300m"}},
    }
    env = {"SUPERVISOR_MLX_PYTHON": str(require_mlx())}
    settings = {"models": models, "devices": {"limit_mib": {"CPU": 700}}, "queue": {"max_swap_wait": 0}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings, env=env) as running:
        yield running


def test_nothing_is_lost(daemon: RunningDaemon) -> None:
    dice = random.Random(7)
    plan = [(dice.choice(MODELS), dice.random() < 0.5) for _ in range(REQUESTS)]
    done: list[int] = []

    def ask(number: int) -> str:
        model, stream = plan[number]
        try:
            return _asked(daemon, model, stream=stream)
        finally:
            done.append(number)

    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(ask, number) for number in range(REQUESTS)]
        for kill in range(KILLS):
            wait_until(lambda least=kill * 6: len(done) >= least, "some more requests are answered")  # type: ignore[misc]  # bound now
            _kill_one(daemon, dice)
        told = [answer.result() for answer in answers]
    assert len(told) == REQUESTS
    assert sum(text == "answered" for text in told) > REQUESTS / 2
    wait_until(daemon.at_rest, "all requests have ended")
    shown = daemon.http.get("/api/v1/models").json()["models"]
    assert all(model["leases"] == model["waiting"] == 0 for model in shown)
    for model in MODELS:
        assert _asked(daemon, model, stream=False) == "answered"


def _asked(daemon: RunningDaemon, model: str, *, stream: bool) -> str:
    """How a request went: `answered`, or how it failed in our own words."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as http:
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code in ALLOWED, answer.text
    if answer.status_code != 200:
        return str(answer.json()["error"]["code"])
    if stream:
        assert "data: [DONE]" in answer.text
        return "engine_lost" if '"error"' in answer.text else "answered"
    assert answer.json()["choices"]
    return "answered"


def _kill_one(daemon: RunningDaemon, dice: random.Random) -> None:
    """Kill an engine of this daemon, whichever lives."""
    pids = [model["pid"] for model in daemon.http.get("/api/v1/models").json()["models"] if model["pid"]]
    ours = {child.pid for child in psutil.Process(daemon.pid).children(recursive=True)}
    if living := sorted(ours.intersection(pids)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(dice.choice(living), signal.SIGKILL)
