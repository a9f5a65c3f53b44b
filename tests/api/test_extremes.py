"""What a client may ask for at most, asked for: a plan takes bounded memory and time, and streams go on meanwhile."""

from __future__ import annotations

import concurrent.futures
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.config.extremes import everything, size
from tests.evidence.subjects import write_subject
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

pytestmark = pytest.mark.engine

MOST_CPU_S = 1.0
MOST_BYTES = 300 * 10**6


@pytest.fixture(scope="module")
def daemon(engine_binary: Path) -> Iterator[RunningDaemon]:
    with scratch_home() as home, running_daemon(home, engine_binary) as running:
        yield running


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of many layers and tensors."""
    return str(write_subject("kimi-k2", tmp_path_factory.mktemp("models")))


def cpu_seconds(daemon: RunningDaemon) -> float:
    times = psutil.Process(daemon.pid).cpu_times()
    return times.user + times.system


def peak_bytes(daemon: RunningDaemon) -> int:
    """The most that it ever held at once."""
    status = Path(f"/proc/{daemon.pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10
    return int(psutil.Process(daemon.pid).memory_info().rss)


def ask(daemon: RunningDaemon, path: str, body: dict[str, Any]) -> tuple[int, float]:
    """The status of the answer, and the daemon's processor time for it."""
    before = cpu_seconds(daemon)
    answer = daemon.http.post(path, json=body)
    return answer.status_code, cpu_seconds(daemon) - before


def test_the_extremes_of_every_option_are_planned_in_bounded_memory_and_time(
    daemon: RunningDaemon, target: str
) -> None:
    ask(daemon, "/api/v1/plan", {"target": target})  # reads the model and asks the engine for its options
    given = everything()
    chosen = random.Random(7)
    given += [{**chosen.choice(given), **chosen.choice(given), **chosen.choice(given)} for _ in range(40)]
    for options in given:
        status, seconds = ask(daemon, "/api/v1/plan", {"target": target, "options": options})
        assert status in {200, 400, 422, 503}, (status, options)
        assert seconds < MOST_CPU_S, (seconds, size(options), str(options)[:200])
    assert peak_bytes(daemon) < MOST_BYTES


@pytest.mark.parametrize(
    "options",
    [
        {"n_cpu_ffn": 10**9},
        {"override_tensor": ["(a)\\1=CPU"]},
        {"override_tensor": ["x=CPU"] * 200},
        {"extra_args": ["x" * 40_000]},
        {"chat_template": "x" * 10**6},
        {"device": ["x"] * 1000},
        {"ctx_size": 10**300},
        {"parallel": True},
        {"swa_full": "yes"},
    ],
)
def test_what_is_beyond_is_refused_by_name(daemon: RunningDaemon, target: str, options: dict[str, Any]) -> None:
    answer = daemon.http.post("/api/v1/plan", json={"target": target, "options": options})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_request")
    assert f"options.{next(iter(options))}" in error["message"]


def test_an_estimate_has_the_same_bounds(daemon: RunningDaemon, target: str) -> None:
    hostile = {"override_tensors": [[f"{index:03}(((.+)+)+)+#{'x.*' * 60}", "CPU"] for index in range(128)]}
    status, seconds = ask(daemon, "/api/v1/estimate", {"target": target, "options": hostile})
    assert status == 200
    assert seconds < MOST_CPU_S
    beyond: list[dict[str, Any]] = [{"n_cpu_moe": 10**9}, {"parallel": 10**6}, {"devices": ["x"] * 1000}]
    beyond += [{"override_tensors": [["(?=a)", "CPU"]]}, {"override_tensors": [["a", "CPU", "b"]]}]
    for options in beyond:
        status, _ = ask(daemon, "/api/v1/estimate", {"target": target, "options": options})
        assert status in {400, 422}, options


def test_streams_go_on_while_clients_plan_what_takes_long(daemon: RunningDaemon, target: str) -> None:
    """Nothing that a client asks to be planned is computed where requests are relayed."""
    hostile = [f"{index:03}{'x.*' * 100}{index}=CPU" for index in range(128)]
    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        for round_ in range(2):
            bodies = [
                {"target": target, "options": {"override_tensor": [f"{n}{round_}{one}" for one in hostile]}}
                for n in range(4)
            ]
            plans = [clients.submit(daemon.http.post, "/api/v1/plan", json=body) for body in bodies]
            answered = 0
            while not all(plan.done() for plan in plans):
                assert daemon.http.get("/health").status_code == 200
                answered += 1
            assert [plan.result().status_code for plan in plans] == [200] * 4
            assert answered >= 12
