"""A minute of mixed traffic with clients that leave and engines that die: nothing is lost, nothing leaks."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.api.conftest import HELLO
from tests.api.soaking import LEFT, Asked, Client, finished
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.full, pytest.mark.timeout(240)]

SECONDS = 60.0
CLIENTS = 8
MODELS = ("one", "two", "three")


def test_a_minute_of_everything(engine_binary: Path, talker: Path) -> None:
    models = {name: {"file": str(talker), "parallel": 4, "ctx_size": 8192} for name in MODELS}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        for name in MODELS:
            daemon.load(name)
        process = psutil.Process(daemon.pid)
        files, memory = process.num_fds(), process.memory_info().rss
        until = time.monotonic() + SECONDS
        asked = Asked(MODELS, [1.0] * len(MODELS), [HELLO] * len(MODELS))
        clients = [Client(daemon.url, seed, until, asked) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        kills = kill_engines(daemon, until)
        seen = finished(clients, 60)
        print(f"{seen.total()} requests, {kills} engines killed: {dict(sorted(seen.items()))}")  # noqa: T201 - figures
        assert {how.partition(": ")[2] for how in seen} <= {"ok", "engine_lost", LEFT}
        wait_until(lambda: sum(daemon.model(name)["leases"] for name in MODELS) == 0, "every lease is back")
        assert process.num_fds() <= files + 3 * CLIENTS, "open files"
        assert process.memory_info().rss < memory + (40 << 20), "memory"


def kill_engines(daemon: RunningDaemon, until: float) -> int:
    """SIGKILL an engine every few seconds; how many."""
    kills = 0
    chosen = random.Random(1)
    while time.monotonic() < until - 5:
        time.sleep(3)  # the rhythm of the test, no wait for anything
        pid = daemon.model(chosen.choice(MODELS))["pid"]
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            kills += 1
    return kills
