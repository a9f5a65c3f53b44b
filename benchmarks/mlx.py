"""What mlx-lm holds, against what was foretold: models of several shapes, each with a context that is full.

    .venv/bin/python -m benchmarks.mlx

Prints, for each, the estimate, the most that the engine's process has held (VmHWM), and the part of that which the
estimate is off. The goal is 10 % and 100 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from supervisor.core.mlx.memory import MlxSettings, estimate
from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Script
from supervisor.engines.mlx.command import MlxLaunch
from supervisor.files.mlx_folder import read_mlx
from tests.support.mlx import require_mlx
from tests.support.scripted_mlx import write_scripted_mlx

_MIB = 1 << 20
_SECONDS = 600.0


@dataclass(frozen=True)
class Shape:
    """A model of so many blocks, and how it is run."""

    blocks: int
    settings: MlxSettings


SHAPES = (
    Shape(1, MlxSettings(1024)),
    Shape(150, MlxSettings(1024)),
    Shape(150, MlxSettings(1024, sequences=2)),
    Shape(50, MlxSettings(1024, kv_bits=8)),
    Shape(50, MlxSettings(4096, prefill_step=256)),
    Shape(150, MlxSettings(1024, prompt_cache_bytes=None)),
)


def main() -> int:
    """Run everything and print."""
    print("| blocks | context | answers | bits | kept [MiB] | foretold [MiB] | held [MiB] | off [MiB] |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    with tempfile.TemporaryDirectory(prefix="mlx-") as scratch:
        scripted = Path(scratch) / "scripted.gguf"
        write_scripted_gguf(scripted, Script(name="bench", default="Hello. ", endless=True, n_ctx=1 << 16))
        for shape in SHAPES:
            folder = write_scripted_mlx(Path(scratch) / f"blocks-{shape.blocks}", scripted, shape.blocks)
            rows.append(_row(shape, folder, Path(scratch)))
    print(json.dumps(rows))
    return 0


def _row(shape: Shape, folder: Path, scratch: Path) -> dict[str, float]:
    found = estimate(read_mlx(folder).facts, shape.settings)
    held = _held(shape, folder, scratch, found.prompt_cache)
    settings = shape.settings
    print(
        f"| {shape.blocks} | {settings.context} | {settings.sequences} | {settings.kv_bits or 32} | "
        f"{found.prompt_cache / _MIB:.0f} | {found.total / _MIB:.0f} | {held / _MIB:.0f} | "
        f"{(found.total - held) / _MIB:+.0f} |",
        flush=True,
    )
    return {"blocks": shape.blocks, "foretold": found.total, "held": held}


def _held(shape: Shape, folder: Path, scratch: Path, kept: int) -> int:
    settings = MlxSettings(**{**vars(shape.settings), "prompt_cache_bytes": kept})
    with _launched(MlxLaunch(folder, "bench", settings, {}), scratch) as (pid, http):
        prompts = ([1 + number] * (settings.context - 16) for number in range(settings.sequences))
        bodies = [{"prompt": prompt, "stream": True} for prompt in prompts]
        for _ in range(2):
            streams = [http.stream("POST", "/completion", json=body) for body in bodies]
            answers = [stream.__enter__() for stream in streams]
            for answer in answers:
                answer.read()
            for stream in streams:
                stream.__exit__(None, None, None)
        status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@contextmanager
def _launched(launch: MlxLaunch, scratch: Path) -> Iterator[tuple[int, httpx.Client]]:
    socket = scratch / "s"
    socket.unlink(missing_ok=True)
    argv = launch.argv(require_mlx(), str(socket))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while '"ready"' not in process.stdout.readline():
                assert process.poll() is None, "the launcher has ended"
            transport = httpx.HTTPTransport(uds=str(socket))
            with httpx.Client(transport=transport, base_url="http://engine", timeout=_SECONDS) as http:
                yield process.pid, http
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
