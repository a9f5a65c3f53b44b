"""Starts the real llama-server and reads from its log what it allocates, to the log's 0.01 MiB.

`Server.measure` loads a model. `Server.project` only lets the server's own fit pass compute the sizes: nothing is
allocated but recurrent states, so that a header is enough for a model of any size; devices are RPC workers on this
machine. It ends the server at the line with the projection, since the load follows.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from supervisor.core.devices.engine_list import parse_device_list
from tests.evidence.settings import Setting
from tests.support.ports import free_port

LOADED = "srv  llama_server: model loaded"
PROJECTED = "projected to use"
COMMON = ("--no-warmup", "-t", "1", "--log-colors", "off", "--offline", "--no-ui")
LOAD = (*COMMON, "-fit", "off", "-lv", "4")
PROJECT = (*COMMON, "-fit", "on", "-nr", "-lv", "5")
"""Repacked weights are left out of the projection's sums, hence `-nr`."""
MOST_MEMORY = 16 << 20  # KiB of address space: a projection that goes on to load fails instead of filling the machine
CRASHES = 3
"""How often a crash is repeated, to keep the longest log."""

Sizes = Mapping[str, float]


@dataclass(frozen=True)
class Cache:
    """One line of `llama_kv_cache`: rows, layers, streams and MiB."""

    cells: int
    layers: int
    streams: int
    k: float
    v: float


@dataclass(frozen=True)
class Measurement:
    """What one start of the server logged. Sizes are MiB; those by device carry the log's own names."""

    subject: str
    setting: str
    outcome: str
    """`loaded`; `projected`; `refused`: it said no; `crashed`: a signal ended it. What was logged by then counts."""
    reason: str = ""
    n_ctx: int = 0
    n_ctx_seq: int = 0
    n_seq: int = 0
    caches: tuple[Cache, ...] = ()
    states: tuple[float, ...] = ()
    """Recurrent states, in their two or three parts, and DeepSeek-4's compressor states."""
    model: Sizes = field(default_factory=dict)
    kv: Sizes = field(default_factory=dict)
    recurrent: Sizes = field(default_factory=dict)
    compute: Sizes = field(default_factory=dict)
    output: Sizes = field(default_factory=dict)
    breakdown: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of a projection: whole MiB of model, context and compute by device (`Host` too)."""

    @property
    def k(self) -> float:
        return sum(cache.k for cache in self.caches)

    @property
    def v(self) -> float:
        return sum(cache.v for cache in self.caches)

    @property
    def state(self) -> float:
        return sum(self.states)

    @property
    def knows_cache(self) -> bool:
        """Whether the log came as far as the caches: the compute buffer comes after them."""
        return bool(self.caches or self.states or self.compute)

    @property
    def knows_compute(self) -> bool:
        return self.outcome in {"loaded", "projected"} and bool(self.compute)

    def to_json(self) -> dict[str, Any]:
        """Without what is empty; caches as lists."""
        found = {name: value for name, value in vars(self).items() if value}
        if self.caches:
            found["caches"] = [[c.cells, c.layers, c.streams, c.k, c.v] for c in self.caches]
        return found

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Measurement:
        caches = tuple(Cache(*fields) for fields in record.get("caches", ()))
        return cls(**{**record, "caches": caches, "states": tuple(record.get("states", ()))})


_NUMBER = r"(\d+\.\d+)"
_BUFFER = re.compile(
    rf":\s+(\S+?)(?:\[\S+\])? (?:DSV4 \w+ state| ?(model|KV|RS|compute|output)) buffer size =\s+{_NUMBER} MiB"
)
_CACHE = re.compile(
    rf"llama_kv_cache: size =\s+{_NUMBER} MiB \(\s*(\d+) cells,\s*(\d+) layers,\s*\d+/(\d+) seqs\), "
    rf"K \(\S+\):\s+{_NUMBER} MiB, V \(\S+\):\s+{_NUMBER} MiB"
)
_STATE = re.compile(
    rf"llama_memory_recurrent: size =.*, R \(\S+\):\s+{_NUMBER} MiB, S \(\S+\):\s+{_NUMBER} MiB, "
    rf"P \(\S+\):\s+{_NUMBER} MiB"
)
_STATE_V4 = re.compile(rf"state = \d+ x \d+, streams = .*, size =\s+{_NUMBER} MiB")
_CONTEXT = re.compile(r"llama_context: (n_ctx|n_ctx_seq|n_seq_max)\s+= (\d+)")
_BREAKDOWN = re.compile(r"\|   - (\S+) .*?(\d+) =\s+(\d+) \+\s+(\d+) \+\s+(\d+)[) ]")
_ERROR = re.compile(r"^\d+(?:\.\d+){3} E (.*)")
_ASSERTION = re.compile(r"(\w+\.\w+):\d+: (GGML_ASSERT.*) failed|terminate called .*")
_HOLDER = {"model": "model", "KV": "kv", "RS": "recurrent", "compute": "compute", "output": "output"}


def parse_log(lines: Iterable[str]) -> dict[str, Any]:
    """The fields of a Measurement that a log tells.

    A context may reserve its compute buffer more than once (one that drafts does): the last one is what it keeps.
    """
    found: dict[str, Any] = {"caches": [], "states": [], "breakdown": {}}
    computes: list[dict[str, float]] = []  # by context
    for line in lines:
        if match := _CONTEXT.search(line):
            if match[1] == "n_seq_max":  # the first line of a context
                computes.append({})
            found[{"n_seq_max": "n_seq"}.get(match[1], match[1])] = int(match[2])
        elif match := _BUFFER.search(line):
            if match[2] == "compute" and computes:
                computes[-1][match[1]] = float(match[3])
            else:
                _add(found, _HOLDER[match[2] or "RS"], match[1], float(match[3]))
        elif match := _CACHE.search(line):
            cells, layers, streams = (int(match[group]) for group in (2, 3, 4))
            found["caches"].append(Cache(cells, layers, streams, float(match[5]), float(match[6])))
        elif states := _states_in(line):
            found["states"] += states
        elif match := _BREAKDOWN.search(line):
            found["breakdown"][match[1]] = [int(match[group]) for group in (3, 4, 5)]
    for device, size in chain.from_iterable(compute.items() for compute in computes):
        _add(found, "compute", device, size)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}


def _states_in(line: str) -> list[float]:
    """The sizes of recurrent states, or of a compressor state, that a line tells."""
    if match := _STATE.search(line):
        r, s, p = (float(size) for size in match.groups())
        return [r, s, p] if p else [r, s]
    match = _STATE_V4.search(line)
    return [float(match[1])] if match else []


def _add(found: dict[str, Any], part: str, device: str, size: float) -> None:
    sizes = found.setdefault(part, {})
    sizes[device] = round(sizes.get(device, 0.0) + size, 2)


@dataclass(frozen=True)
class Server:
    """A llama-server binary, and how long one start may take."""

    binary: Path
    time_limit: float = 60.0

    def measure(self, subject: str, model: Path, setting: Setting) -> Measurement:
        """Starts it, waits until the model is loaded or it gives up, ends it."""
        arguments = ["-m", str(model), *LOAD, *setting.arguments]
        lines, code = self._log_of(arguments, LOADED)
        fields = parse_log(lines)
        del fields["breakdown"]
        if "CPU_Mapped" in fields.get("model", {}):  # the span of the file, not the tensors
            del fields["model"]
        return self._measurement(subject, setting, "loaded", lines, code, fields)

    def project(self, subject: str, model: Path, setting: Setting, workers: Sequence[str]) -> Measurement:
        """Lets the fit pass compute the sizes; `workers` are the addresses of as many RPC workers as devices."""
        devices = ["--rpc", ",".join(workers)] if workers else []
        lines, code = self._log_of(["-m", str(model), *PROJECT, *setting.arguments, *devices], PROJECTED)
        return self._projection(subject, setting, list(_number_workers(lines, workers)), code)

    def project_on(self, subject: str, model: Path, setting: Setting, devices: Sequence[str]) -> Measurement:
        """As `project`, on devices of this machine by llama.cpp's names for them."""
        chosen = ["-dev", ",".join(devices[: setting.devices])]
        arguments = ["-m", str(model), *PROJECT, *setting.arguments, *chosen]
        lines, code = self._log_of(
            arguments, PROJECTED, most_memory="unlimited"
        )  # drivers reserve addresses by the TiB
        return self._projection(subject, setting, lines, code)

    def devices(self, backend: str) -> dict[str, str]:
        """Descriptions of the devices of a back end, by llama.cpp's names for them."""
        done = subprocess.run([self.binary, "--list-devices"], capture_output=True, text=True, timeout=60, check=True)
        listed = parse_device_list(done.stdout + done.stderr)
        return {one.name: one.description for one in listed if one.backend == backend}

    def _projection(self, subject: str, setting: Setting, lines: list[str], code: int | None) -> Measurement:
        fields = parse_log(lines)
        for unallocated in ("model", "kv", "output"):  # the breakdown has them
            fields.pop(unallocated, None)
        return self._measurement(subject, setting, "projected", lines, code, fields)

    def build(self) -> str:
        """What the binary calls itself, such as `11434 (b1234567)`."""
        done = subprocess.run([self.binary, "--version"], capture_output=True, text=True, timeout=30, check=True)
        return next(line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version"))[9:]

    @contextmanager
    def workers(self, count: int) -> Iterator[list[str]]:
        """That many RPC workers on this machine; their addresses."""
        binary = self.binary.with_name("ggml-rpc-server")
        running: list[subprocess.Popen[bytes]] = []
        try:
            addresses = []
            for _ in range(count):
                port = free_port()
                command = [str(binary), "-H", "127.0.0.1", "-p", str(port)]
                running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                _wait_for(port)
                addresses.append(f"127.0.0.1:{port}")
            yield addresses
        finally:
            for process in running:
                process.kill()
                process.wait()

    @staticmethod
    def _measurement(
        subject: str, setting: Setting, outcome: str, lines: list[str], code: int | None, fields: dict[str, Any]
    ) -> Measurement:
        if code is None:
            return Measurement(subject, setting.name, outcome, **fields)
        return Measurement(subject, setting.name, "crashed" if code < 0 else "refused", _reason(lines, code), **fields)

    def _log_of(
        self, arguments: list[str], until: str, most_memory: str = str(MOST_MEMORY)
    ) -> tuple[list[str], int | None]:
        """As `_run`; of a start that crashes the longest log of several: its log thread may not have written all."""
        lines, code = self._run(arguments, until, most_memory)
        for _ in range(CRASHES if code and code < 0 else 0):
            lines, code = max((lines, code), self._run(arguments, until, most_memory), key=lambda found: len(found[0]))
        return lines, code

    def _run(
        self, arguments: list[str], until: str, most_memory: str = str(MOST_MEMORY)
    ) -> tuple[list[str], int | None]:
        """The log until that line (code None) or until the server ended by itself (its exit code)."""
        with tempfile.TemporaryDirectory(prefix="evidence-") as scratch:
            limited = ["sh", "-c", f'ulimit -v {most_memory}; ulimit -c 0; exec "$@"', "sh"]
            process = subprocess.Popen(
                [*limited, str(self.binary), "--host", f"{scratch}/s.sock", *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", env=os.environ | {"GGML_NO_BACKTRACE": "1"},
            )  # fmt: skip
            limit = threading.Timer(self.time_limit, process.kill)
            limit.start()
            lines: list[str] = []
            try:
                for line in process.stdout or ():
                    lines.append(line)
                    if until in line:
                        return lines, None
                return lines, process.wait()
            finally:
                limit.cancel()
                process.kill()
                process.wait()
                if process.stdout:
                    process.stdout.close()


def _number_workers(lines: list[str], workers: Sequence[str]) -> Iterator[str]:
    """The log tells workers apart by address alone: every one is its own RPC0."""
    for line in lines:
        if "RPC" in line:
            for number, address in enumerate(workers):
                line = re.sub(rf"RPC\d\[{re.escape(address)}\]", f"RPC{number}", line)
        yield line


def _reason(lines: list[str], code: int) -> str:
    """The assertion it died of, or the first line of level error; without folders."""
    for pattern in (_ASSERTION, _ERROR):
        for line in lines:
            if match := pattern.search(line):
                return re.sub(r"/\S+/", "", " ".join(filter(None, match.groups())) or match[0])[:200]
    return f"exit code {code}"


def _wait_for(port: int, patience: float = 10.0) -> None:
    end = time.monotonic() + patience
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
