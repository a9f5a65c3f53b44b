"""A cluster of daemons on this machine: each with a state folder of its own, all on loopback."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.support.daemon import RunningDaemon, environment, scratch_home, start_daemon, wait_until
from tests.support.patience import PATIENCE
from tests.support.ports import free_pair, free_port


class Node:
    """A host: its state folder, and its daemon while that runs."""

    def __init__(
        self, name: str, home: Path, engine: Path, settings: Mapping[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.home = home
        self.engine = engine
        self.settings = settings
        self.more = dict(env or {})
        self.env = environment(home, engine, **self.more)
        self.port = free_port()
        self.store_port = free_pair()
        self.running: RunningDaemon | None = None

    @property
    def daemon(self) -> RunningDaemon:
        """Its daemon, which runs."""
        assert self.running is not None
        return self.running

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the command line there."""
        argv = [sys.executable, "-P", "-m", "supervisor", *words]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def did(self, *words: str) -> str:
        """The output of a command that succeeds."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def place(self) -> tuple[str, ...]:
        """Where it is reached, in words of the command line."""
        return "--host", "127.0.0.1", "--port", str(self.port), "--store-port", str(self.store_port)

    def init(self, *servers: Node) -> None:
        """Begin a cluster. servers: nodes that will run NATS servers, too."""
        words = [word for one in servers for word in ("--server", f"127.0.0.1:{one.store_port}")]
        self.did("cluster", "init", "--name", self.name, *self.place, *words)

    def join(self, other: Node) -> None:
        """Join the cluster of another one, with a new invitation."""
        token = other.daemon.http.post("/api/v1/cluster/invitations", json={}).json()["token"]
        self.did("cluster", "join", token, "--name", self.name, *self.place)

    def start(self, *, alone: bool = False) -> RunningDaemon:
        """Start the daemon, and wait until it hears the others. alone: it need not yet."""
        self.running = start_daemon(self.home, self.engine, self.settings, env=self.more)
        if alone:
            return self.running
        wait_until(lambda: self.cluster()["connected"], f"{self.name} is connected")
        return self.running

    def cluster(self) -> dict[str, Any]:
        """What it knows of the cluster."""
        answer = self.daemon.http.get("/api/v1/cluster")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def sees(self, other: Node) -> dict[str, Any]:
        """What it knows of another node; nothing where it is no member."""
        return next((one for one in self.cluster()["nodes"] if one["name"] == other.name), {})

    def nats(self) -> psutil.Process:
        """The NATS server that it runs."""
        below = psutil.Process(self.daemon.pid).children(recursive=True)
        return next(one for one in below if one.name() == "nats-server")

    def has(self, model: str) -> bool:
        """Whether a model has an engine here that is ready."""
        return bool(self.daemon.model(model)["state"] == "ready")

    def kill(self) -> None:
        """Kill the daemon; its engines die with it."""
        below = psutil.Process(self.daemon.pid).children(recursive=True)
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait(PATIENCE)
        _, alive = psutil.wait_procs(below, timeout=PATIENCE)
        assert not alive, alive
        self.daemon.http.close()
        self.running = None

    def end(self) -> None:
        """Stop the daemon, if it runs; nothing that it started lives afterwards."""
        if self.running is None:
            return
        below = psutil.Process(self.running.pid).children(recursive=True) if self.running.process.poll() is None else []
        self.running.http.close()
        self.running.process.terminate()
        self.running.process.wait(PATIENCE)
        _, alive = psutil.wait_procs(below, timeout=PATIENCE)
        assert not alive, alive
        self.running = None


@contextlib.contextmanager
def cluster_of(
    engine: Path, *, servers: int = 1, env: Mapping[str, str] | None = None, **settings: Mapping[str, Any]
) -> Iterator[list[Node]]:
    """A cluster: a node for each name, with its settings; the first one has the authority.

    servers: so many of them run NATS servers, from the first one on. env: what all of them have in their environment.
    """
    with contextlib.ExitStack() as stack:
        nodes = [Node(name, stack.enter_context(scratch_home()), engine, own, env) for name, own in settings.items()]
        try:
            nodes[0].init(*nodes[1:servers])
            nodes[0].start(alone=True)
            for node in nodes[1:]:
                node.join(nodes[0])
                node.start(alone=True)
            for node in nodes:
                wait_until(lambda: node.cluster()["connected"], f"{node.name} is connected")  # noqa: B023 - called at once
            for node in nodes:
                for other in nodes:
                    wait_until(lambda: node.sees(other).get("state") == "ready", "all see each other")  # noqa: B023 - called at once
            yield nodes
        except BaseException:
            for node in nodes:
                log = node.home / "daemon-output.log"
                if log.exists():
                    sys.stdout.write(f"\n== {node.name}\n{log.read_text()[-4000:]}\n")
            raise
        finally:
            for node in reversed(nodes):
                node.end()


def events(text: str) -> list[Any]:
    """The data of a stream's events; the last one of OpenAI's as it is."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]
