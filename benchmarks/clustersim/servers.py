"""NATS servers on loopback, configured as a node configures its own, and the ways there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

import psutil

from supervisor.cluster.joining import begin
from supervisor.cluster.kept import Membership, Server
from supervisor.cluster.store import Bucket
from supervisor.core.cluster.natsconfig import NatsConfig
from tests.support.patience import PATIENCE
from tests.support.ports import free_pair, free_port
from tests.support.programs import beside_python

_READY: Final = "Server is ready"


class NatsServers:
    """So many servers. folder: where they and the cluster's authority keep what they have."""

    def __init__(self, count: int, folder: Path) -> None:
        ports = [free_pair() for _ in range(count)]
        self.addresses = [Server("127.0.0.1", port) for port in ports]
        self.kept: Membership = begin(folder, "first", ("127.0.0.1", free_port()), self.addresses)
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = [self._started(number) for number in range(count)]
        for number in range(count):
            self._wait(number)

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        port = self.addresses[number].port
        others = [one.port + 1 for one in self.addresses if one.port != port]
        config = NatsConfig(
            name=f"server{number}",
            host="127.0.0.1",
            port=port,
            folder=str(self._folder / f"store{number}"),
            authority=str(self.kept.authority),
            chain=str(self.kept.chain),
            key=str(self.kept.key),
            users=[self.kept.own],
            buckets=get_args(Bucket),
            routes=[f"127.0.0.1:{one}" for one in others],
            route_port=port + 1,
        )
        text = config.text().replace("cluster {", "cluster {\n  no_advertise: true")  # nodes know the ways alone
        file, log = self._folder / f"nats{number}.conf", self._folder / f"nats{number}.log"
        file.write_text(text, "utf-8")
        return subprocess.Popen([beside_python("nats-server"), "--config", file, "--log", log])

    def _wait(self, number: int) -> None:
        log, until = self._folder / f"nats{number}.log", time.monotonic() + PATIENCE
        while not log.exists() or _READY not in log.read_text():
            assert time.monotonic() < until, "nats-server is not ready"
            time.sleep(0.05)

    def seconds(self) -> list[float]:
        """The CPU seconds of each."""
        return [sum(psutil.Process(one.pid).cpu_times()[:2]) for one in self._processes]

    def signal(self, number: int, which: int) -> None:
        """Send a signal to one."""
        self._processes[number].send_signal(which)

    def again(self, number: int) -> None:
        """Kill one, and have it run again."""
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._started(number)

    def close(self) -> None:
        """End all."""
        for one in self._processes:
            one.kill()
            one.wait()


class Links:
    """The ways of so many nodes to the servers. ports: for each node those that stand for the servers'."""

    def __init__(self, servers: Sequence[Server], nodes: int) -> None:
        argv = [sys.executable, "-P", "-m", "benchmarks.clustersim.links"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        asked = json.dumps({"ports": [one.port for one in servers], "nodes": nodes})
        self.ports: list[list[int]] = json.loads(self._said(asked))

    def set_cut(self, node: int, *, cut: bool) -> None:
        """Have nothing get through between a node and the servers, or again."""
        self._say(f"{'cut' if cut else 'mend'} {node}")

    def bytes(self) -> int:
        """All bytes so far, both ways."""
        return int(self._said("count"))

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _said(self, line: str) -> str:
        self._say(line)
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """End them."""
        self._process.kill()
        self._process.wait()
