"""Starts the real llama-server and reads from its log what it allocated, to the log's 0.01 MiB."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY = "srv  llama_server: model loaded"
QUIET = ("-fit", "off", "--no-warmup", "-t", "1", "-lv", "4", "--log-colors", "off", "--offline", "--no-ui")
"""Nothing may change the sizes by itself; one thread; the verbosity at which buffers are named."""

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
    """`loaded`; `refused`: it said no; `crashed`: it ended by a signal. What was logged until then counts."""
    reason: str = ""
    n_ctx: int = 0
    n_ctx_seq: int = 0
    n_seq: int = 0
    caches: tuple[Cache, ...] = ()
    states: tuple[float, ...] = ()
    """Recurrent states and DeepSeek-4's compressor states, one per log line."""
    model: Sizes = field(default_factory=dict)
    kv: Sizes = field(default_factory=dict)
    recurrent: Sizes = field(default_factory=dict)
    compute: Sizes = field(default_factory=dict)
    output: Sizes = field(default_factory=dict)

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
    def has_cache_lines(self) -> bool:
        """Whether the log came as far as the caches: compute or an output buffer comes after or before them."""
        return bool(self.caches or self.states or self.compute)

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
_BUFFER = re.compile(rf":\s+(\S.*?)\s+(?:DSV4 \w+ state|(model|KV|RS|compute|output)) buffer size =\s+{_NUMBER} MiB")
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
_ERROR = re.compile(r"^\d+(?:\.\d+){3} E (.*)")
_ASSERTION = re.compile(r"(\w+\.\w+):\d+: (GGML_ASSERT.*) failed|terminate called .*")
_HOLDER = {"model": "model", "KV": "kv", "RS": "recurrent", "compute": "compute", "output": "output"}


def parse_log(lines: Iterable[str]) -> dict[str, Any]:
    """The fields of a Measurement that a log tells."""
    found: dict[str, Any] = {"caches": [], "states": []}
    for line in lines:
        if match := _CONTEXT.search(line):
            found[{"n_seq_max": "n_seq"}.get(match[1], match[1])] = int(match[2])
        elif match := _BUFFER.search(line):
            sizes = found.setdefault(_HOLDER[match[2] or "RS"], {})
            sizes[match[1]] = round(sizes.get(match[1], 0.0) + float(match[3]), 2)
        elif match := _CACHE.search(line):
            cells, layers, streams = (int(match[group]) for group in (2, 3, 4))
            found["caches"].append(Cache(cells, layers, streams, float(match[5]), float(match[6])))
        elif match := _STATE.search(line):
            found["states"] += [float(size) for size in match.groups() if float(size)]
        elif match := _STATE_V4.search(line):
            found["states"].append(float(match[1]))
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}


@dataclass(frozen=True)
class Server:
    """A llama-server binary, and how long one start may take."""

    binary: Path
    time_limit: float = 60.0

    def measure(self, subject: str, model: Path, setting: str, arguments: Iterable[str]) -> Measurement:
        """Starts it, waits until the model is loaded or it gives up, ends it."""
        with tempfile.TemporaryDirectory(prefix="evidence-") as scratch:
            command = [str(self.binary), "-m", str(model), "--host", f"{scratch}/s.sock", *QUIET, *arguments]
            lines, code = self._run(command)
        fields = parse_log(lines)
        if code is None:
            return Measurement(subject, setting, "loaded", **fields)
        outcome = "crashed" if code < 0 else "refused"
        return Measurement(subject, setting, outcome, _reason(lines, code), **fields)

    def build(self) -> str:
        """`version: …` as the binary says it."""
        done = subprocess.run([self.binary, "--version"], capture_output=True, text=True, timeout=30, check=True)
        return next(line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version"))

    def _run(self, command: list[str]) -> tuple[list[str], int | None]:
        """The log until the model is loaded (code None) or until the server ended by itself (its exit code)."""
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        )  # fmt: skip
        limit = threading.Timer(self.time_limit, process.kill)
        limit.start()
        lines: list[str] = []
        try:
            for line in _lines(process):
                lines.append(line)
                if READY in line:
                    return lines, None
            return lines, process.wait()
        finally:
            limit.cancel()
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    if process.stdout:
        yield from process.stdout


def _reason(lines: list[str], code: int) -> str:
    """The assertion it died of, or the first line of level error; without folders."""
    for pattern in (_ASSERTION, _ERROR):
        for line in lines:
            if match := pattern.search(line):
                return re.sub(r"/\S+/", "", " ".join(filter(None, match.groups())) or match[0])[:200]
    return f"exit code {code}"
