"""A minute of mixed traffic with clients that leave and engines that die: nothing is lost, nothing leaks."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

pytestmark = [pytest.mark.engine, pytest.mark.full, pytest.mark.timeout(240)]

SECONDS = 60.0
CLIENTS = 8
MODELS = ("one", "two", "three")


class Client(threading.Thread):
    """Asks for this and that until the time is over; every answer must be one that the documentation names."""

    def __init__(self, daemon: RunningDaemon, seed: int, until: float) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._until = until
        self._http = httpx.Client(base_url=daemon.url, timeout=60, trust_env=False)
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        with self._http:
            while time.monotonic() < self._until:
                kind = self._random.choice(("whole", "stream", "leave", "embed"))
                self.seen[f"{kind}: {getattr(self, kind)(self._random.choice(MODELS))}"] += 1

    def whole(self, model: str) -> str:
        answer = self._http.post("/v1/chat/completions", json=self._chat(model, "Hi"))
        return "ok" if answer.status_code == 200 else str(answer.json()["error"]["code"])

    def stream(self, model: str) -> str:
        with self._http.stream("POST", "/v1/chat/completions", json=self._chat(model, "Hi", stream=True)) as answer:
            if answer.status_code != 200:
                answer.read()
                return str(answer.json()["error"]["code"])
            lines = [line for line in answer.iter_lines() if line]
        assert lines[-1] == "data: [DONE]", lines[-3:]
        return "engine_lost" if '"error"' in lines[-2] else "ok"

    def leave(self, model: str) -> str:
        body = self._chat(model, "endless", stream=True)
        with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            next(answer.iter_raw(), b"")
        return "left"

    def embed(self, model: str) -> str:
        answer = self._http.post("/v1/embeddings", json={"model": model, "input": "x"})
        return "ok" if answer.status_code == 200 else str(answer.json()["error"]["code"])

    def _chat(self, model: str, text: str, **more: object) -> dict[str, object]:
        return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def test_a_minute_of_everything(engine_binary: Path, talker: Path) -> None:
    models = {name: {"file": str(talker), "parallel": 4, "ctx_size": 8192} for name in MODELS}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        for name in MODELS:
            daemon.load(name)
        process = psutil.Process(daemon.pid)
        files, memory = process.num_fds(), process.memory_info().rss
        until = time.monotonic() + SECONDS
        clients = [Client(daemon, seed, until) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        kills = kill_engines(daemon, until)
        for client in clients:
            client.join(60)
            assert not client.is_alive(), "a request was never answered"
        seen = sum((client.seen for client in clients), Counter[str]())
        print(f"{seen.total()} requests, {kills} engines killed: {dict(sorted(seen.items()))}")  # noqa: T201 - figures
        answers = {f"{kind}: {how}" for kind in ("whole", "stream", "embed") for how in ("ok", "engine_lost")}
        assert set(seen) <= {*answers, "leave: left"}
        wait_until(lambda: sum(daemon.model(name)["leases"] for name in MODELS) == 0, 10, "every lease is back")
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
