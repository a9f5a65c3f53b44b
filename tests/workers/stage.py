"""A daemon that takes workers, and workers on this machine: each with a state folder of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.daemon import RunningDaemon, environment, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

LISTEN = {"workers": {"listen": "127.0.0.1:0"}}


class Host:
    """Another host: its state folder, and its worker's process while that runs."""

    def __init__(self, home: Path, engine: Path) -> None:
        self.home = home
        self.env = environment(home, engine)
        self.process: subprocess.Popen[bytes] | None = None
        self.output = home / "worker.log"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the command line there."""
        argv = [sys.executable, "-P", "-m", "supervisor", *words]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def join(self, daemon: RunningDaemon, name: str) -> None:
        """Join, with a new invitation."""
        done = self.run("worker", "join", invited(daemon), "--name", name)
        assert done.returncode == 0, done.stderr

    def lend(self, *words: str) -> None:
        """Start the worker."""
        with self.output.open("ab") as log:
            argv = [sys.executable, "-P", "-m", "supervisor", "worker", *words]
            self.process = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def rpc_servers(self) -> list[psutil.Process]:
        """The RPC servers that run there."""
        if self.process is None or self.process.poll() is not None:
            return []
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [one for one in below if _name(one) == "ggml-rpc-server"]

    def end(self) -> None:
        """Stop the worker; nothing it started lives afterwards."""
        if self.process is None:
            return
        below = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        self.process.terminate()
        self.process.wait(PATIENCE)
        _, alive = psutil.wait_procs(below, timeout=PATIENCE)
        assert not alive, alive


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def invited(daemon: RunningDaemon, **more: Any) -> str:
    """A token."""
    answer = daemon.http.post("/api/v1/workers/invitations", json={"host": "127.0.0.1", **more})
    assert answer.status_code == 200, answer.text
    token: str = answer.json()["token"]
    return token


def workers(daemon: RunningDaemon) -> dict[str, dict[str, Any]]:
    """The workers by name."""
    answer = daemon.http.get("/api/v1/workers")
    assert answer.status_code == 200, answer.text
    return {one["name"]: one for one in answer.json()["workers"]}


def wait_for_gateway(daemon: RunningDaemon) -> None:
    """Wait until workers are let in."""
    wait_until(lambda: daemon.http.get("/api/v1/workers").json()["unable"] is None, "the gateway")


def wait_for(daemon: RunningDaemon, name: str, state: str = "ready") -> dict[str, Any]:
    """Wait until a worker is in this state."""
    wait_until(lambda: workers(daemon).get(name, {}).get("state") == state, f"{name} is {state}")
    return workers(daemon)[name]


def wait_for_device(daemon: RunningDaemon, name: str) -> dict[str, Any]:
    """Wait until a device is among those that are planned with."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [one for one in daemon.http.get("/api/v1/devices").json()["devices"] if one["name"] == name]
        return bool(found)

    wait_until(there, f"the device {name}")
    return found[0]


@contextlib.contextmanager
def hosts(engine: Path, count: int) -> Iterator[list[Host]]:
    """So many other hosts."""
    with contextlib.ExitStack() as stack:
        made = [Host(stack.enter_context(scratch_home()), engine) for _ in range(count)]
        try:
            yield made
        finally:
            for one in made:
                one.end()


@contextlib.contextmanager
def daemon_with_workers(
    engine: Path, names: Sequence[str], settings: dict[str, Any], *words: str
) -> Iterator[tuple[RunningDaemon, list[Host]]]:
    """A daemon with these workers, which are there."""
    with (
        scratch_home() as home,
        hosts(engine, len(names)) as made,
        running_daemon(home, engine, {**LISTEN, **settings}) as daemon,
    ):
        wait_for_gateway(daemon)
        for host, name in zip(made, names, strict=True):
            host.join(daemon, name)
            host.lend("--no-cache", *words)
        for name in names:
            wait_for(daemon, name)
            wait_for_device(daemon, f"{name}/CPU")
        yield daemon, made


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events of a stream, without the last one."""
    for line in lines:
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))
