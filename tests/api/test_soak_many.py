"""Two hundred configured models, many clients, little memory, and everybody who can do harm: nothing lost, no leak.

SUPERVISOR_SOAK_SECONDS says for how long; 600 where it is not set.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.api.rooms import make_room, write
from tests.api.soaking import LEFT, Asked, Client, finished
from tests.support.daemon import ROOT, RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

SECONDS = float(os.environ.get("SUPERVISOR_SOAK_SECONDS", "600"))
MODELS, CLIENTS, FILES, ROOM = 200, 64, 4, 16
MIB = 1 << 20
ENDLESS = "and so on and so forth "
FAULTS = {"engine_lost", "engine_killed", "model_load_failed", "engine_start_failed", "load_cancelled", "crash_loop"}
FAULTS |= {"does_not_fit"}  # while memory is kept free for a model whose engine was killed when it loaded

pytestmark = [pytest.mark.engine, pytest.mark.full, pytest.mark.timeout(int(SECONDS) + 400)]


class Harm(threading.Thread):
    """Does one of these again and again: kill, stop, load, unload, reload, look.

    every: mean seconds between two.
    """

    def __init__(
        self, daemon: RunningDaemon, settings: dict[str, Any], until: float, what: tuple[str, ...], every: float
    ) -> None:
        super().__init__(name=f"harm: {what}")
        self._random = random.Random(str(what))
        self._daemon, self._settings, self._until = daemon, settings, until
        self._what, self._every = what, every
        self._http = httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False)
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []

    def run(self) -> None:
        with self._http:
            while time.monotonic() < self._until:
                time.sleep(2 * self._every * self._random.random())  # the rhythm of the test, no wait for anything
                what = self._random.choice(self._what)
                try:
                    getattr(self, f"_{what}")()
                except Exception as error:  # noqa: BLE001 - told by the test that started this thread
                    self.failed.append(f"{what}: {error!r}")
                self.done[what] += 1

    def _kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        engines = psutil.Process(self._daemon.pid).children()
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):  # it has ended by itself; there is none
            self._random.choice(engines).send_signal(how)

    def _stop(self) -> None:
        """It holds its room until it is found out."""
        self._kill(signal.SIGSTOP)

    def _load(self) -> None:
        self._ok(self._http.post("/api/v1/models/load", json={"target": self._any(), "wait": False}))

    def _unload(self) -> None:
        body = {"model": self._any(), "now": self._random.random() < 0.5}
        self._ok(self._http.post("/api/v1/models/unload", json=body))

    def _reload(self) -> None:
        """Launch a few models otherwise."""
        for name in self._random.sample(sorted(self._settings["models"]), 5):
            model = self._settings["models"][name]
            model["ctx_size"] = 12288 - model["ctx_size"]
        write(self._daemon, self._settings)
        self._ok(self._http.post("/api/v1/config/reload"))

    def _look(self) -> None:
        for path in ("/v1/models", "/running", "/api/v1/status", "/api/v1/requests", "/health"):
            self._ok(self._http.get(path))

    def _any(self) -> str:
        return f"m{min(int(self._random.paretovariate(0.7)), MODELS) - 1}"

    def _ok(self, answer: httpx.Response) -> None:
        assert answer.status_code in {200, 202}, answer.text


class Watch(threading.Thread):
    """What the daemon holds, every second."""

    def __init__(self, process: psutil.Process, until: float) -> None:
        super().__init__(name="watch")
        self._process, self._until = process, until
        self.memory: list[tuple[float, int]] = []
        self.files = 0

    def run(self) -> None:
        while time.monotonic() < self._until:
            self.memory.append((time.monotonic(), self._process.memory_info().rss))
            self.files = max(self.files, self._process.num_fds())
            time.sleep(1)

    def slope(self) -> float:
        """Bytes a second in the second half."""
        half = self.memory[len(self.memory) // 2 :]
        return statistics.linear_regression(*zip(*half, strict=True)).slope


def tasks(daemon: RunningDaemon) -> int:
    """How many asyncio tasks the daemon has."""
    file = daemon.home / "tasks"
    file.unlink(missing_ok=True)
    os.kill(daemon.pid, signal.SIGUSR2)
    wait_until(lambda: file.exists() and bool(file.read_text()), "the number of tasks")
    return int(file.read_text())


def at_rest(daemon: RunningDaemon) -> tuple[int, int]:
    """Tasks and open files once nothing is loaded and nobody asks."""
    assert daemon.http.get("/unload").status_code == 200
    wait_until(lambda: not psutil.Process(daemon.pid).children(), "the end of every engine")
    wait_until(daemon.at_rest, "the end of every request")
    return tasks(daemon), psutil.Process(daemon.pid).num_fds()


def test_everything_at_once(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    says = [f"Model number {number} speaks." for number in range(FILES)]
    files = [scripted_model(text, when={"endless": ENDLESS * 400}) for text in says]
    models = {
        f"m{number}": {"file": str(files[number % FILES]), "parallel": 4, "ctx_size": 8192, "threads": 1}
        for number in range(MODELS)
    }
    settings: dict[str, Any] = {"server": {"watch_config": False}, "models": models}
    with scratch_home() as home:
        own = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/support/tasks'}", "TASKS": str(home / "tasks")}
        with running_daemon(home, engine_binary, settings, env=own) as daemon:
            make_room(daemon, settings, "m0", ROOM)
            assert daemon.chat("m0", "Hi").status_code == 200
            before = at_rest(daemon)
            until = time.monotonic() + SECONDS
            weights = [1 / (1 + number) for number in range(MODELS)]
            asked = Asked(list(models), weights, [says[number % FILES] for number in range(MODELS)])
            clients = [Client(daemon.url, seed, until, asked, think=0.5) for seed in range(CLIENTS)]
            harm = [
                Harm(daemon, settings, until, *one)
                for one in ((("kill",), 2.0), (("stop",), 15.0), (("load", "unload", "reload"), 1.0), (("look",), 1.0))
            ]
            watch = Watch(psutil.Process(daemon.pid), until)
            for thread in (*clients, *harm, watch):
                thread.start()
            seen = finished(clients, SECONDS + 200)
            for thread in (*harm, watch):
                thread.join(2 * PATIENCE)
            after = at_rest(daemon)
            report(daemon, clients, seen, harm, watch, (before, after))
        assert [failure for one in harm for failure in one.failed] == []
        assert {how.partition(": ")[2] for how in seen} <= {"ok", LEFT, *FAULTS}
        refused = [message for client in clients for message in client.told["does_not_fit"]]
        assert all("The engine was killed: planned again" in message for message in refused), refused
        assert min(seen["whole: ok"], seen["stream: ok"], seen["embed: ok"]) > SECONDS / 10
        assert after[0] <= before[0] + 2, "tasks"
        assert after[1] <= before[1] + 8, "open files"
        assert watch.slope() * SECONDS / 2 < 24 * MIB, "memory"


def report(
    daemon: RunningDaemon,
    clients: list[Client],
    seen: Counter[str],
    harm: list[Harm],
    watch: Watch,
    rest: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    waits = sorted(wait for client in clients for wait in client.waits)
    log = (daemon.home / "daemon-output.log").read_text(errors="replace")
    memory = [rss // MIB for _, rss in watch.memory]
    told = {code: next(iter(messages)) for client in clients for code, messages in client.told.items()}
    done = sum((one.done for one in harm), Counter[str]())
    busy = sum(psutil.Process(daemon.pid).cpu_times()[:2])
    print(  # noqa: T201 - figures
        f"{SECONDS:g} s, {seen.total()} requests: {dict(sorted(seen.items()))}\n"
        f"harm: {dict(done)}; {log.count('engine_start ')} engines started\n"
        f"waits: median {statistics.median(waits):.2f} s, longest {waits[-1]:.1f} s; {busy:.0f} s of processor time\n"
        f"tasks and open files at rest: {rest[0]} before, {rest[1]} after; at most {watch.files} files\n"
        f"memory: {memory[0]} MiB, in the middle {memory[len(memory) // 2]}, at the end {memory[-1]}, "
        f"slope of the second half {watch.slope() / 1024:.1f} KiB/s; load average {os.getloadavg()[0]:.1f}\n"
        f"told: {told}"
    )
