"""Checks plans, loads and failures on this machine's GPUs, with models of random weights.

    bin/gpu-check --backend cuda                                     builds an engine, then 1, 4, 16 and 60 GiB
    bin/gpu-check --engine PATH --models llama:0.1,qwen3moe:0.4      with an engine that is there

For each model: written, planned, loaded, planned bytes against the engine's log and the driver's figures, tokens per
second, unloaded, deleted. Then two models side by side, a neighbour that holds memory, and an engine that takes more
than was planned, after which the daemon must still serve. Prints the Markdown of docs/gpu-evidence.md; progress goes to
stderr. Only 127.0.0.1 is contacted. Ctrl-C, SIGTERM and the time limit end everything that was started.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from benchmarks.gpucheck.account import report
from benchmarks.gpucheck.models import FAMILIES, GIB, TYPES, model_of
from benchmarks.gpucheck.scenes import Check, load_all, say
from supervisor.llamacpp.machine import BACKENDS
from supervisor.llamacpp.store import EngineStore
from supervisor.system.paths import places

_DEFAULT = "llama:1,llama:4,qwen3moe:16,qwen3moe:60"


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(int(60 * options.minutes))
    try:
        with _folder(options.folder) as folder:
            started = time.monotonic()
            engine = options.engine or _engine(options.backend)
            check = Check(engine.resolve(), folder, options.ctx, options.tokens, int(options.address_space * GIB))
            models = [model_of(family, gib, TYPES[options.type]) for family, gib in options.models]
            loads, scenes = load_all(check, models)
            facts = _facts(engine, options.backend, check, time.monotonic() - started)
    except KeyboardInterrupt:
        say("cancelled; everything that was started has been ended")
        return 130
    except _Late:
        say(f"not done within {options.minutes:g} minutes; everything that was started has been ended")
        return 124
    sys.stdout.write(report(options.title or platform.node(), facts, loads, scenes))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=BACKENDS, default="cuda", help="of the engine (default: cuda)")
    parser.add_argument(
        "--engine", type=Path, help="a llama-server; without it, the store's of the back end, else built"
    )
    parser.add_argument("--models", type=models_of, default=models_of(_DEFAULT), help=f"FAMILY:GIB,… ({_DEFAULT})")
    parser.add_argument("--type", choices=TYPES, default="q8_0", help="of the models' matrices (default: q8_0)")
    parser.add_argument("--ctx", type=int, default=8192, help="tokens of context (default: 8192)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer; prompts are 4 times as long")
    parser.add_argument(
        "--address-space",
        type=float,
        default=0,
        metavar="GIB",
        help="of the engine that takes too much; for devices whose memory is the host's, such as a software driver",
    )
    parser.add_argument("--minutes", type=float, default=60, help="the most that all of it may take (default: 60)")
    parser.add_argument("--folder", type=Path, help="where models are written (default: the folder of temporary files)")
    parser.add_argument("--title", help="of the section that is printed (default: the machine's name)")
    return parser.parse_args()


def models_of(text: str) -> tuple[tuple[str, float], ...]:
    """`llama:1,qwen3moe:16`: families and GiB."""
    found = []
    for word in text.split(","):
        family, _, size = word.partition(":")
        if family not in FAMILIES or not size:
            raise argparse.ArgumentTypeError(f"{word}: FAMILY:GIB with one of {', '.join(FAMILIES)}")
        try:
            found.append((family, float(size)))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{size} is no number of GiB") from None
    return tuple(found)


def _engine(backend: str) -> Path:
    """The store's engine of the back end; without one it is built."""
    for _ in range(2):
        store = EngineStore(places(os.environ).engines)
        for manifest in store.engines():
            if manifest.backend == backend:
                return store.binary(manifest.name)
        say(f"building llama-server for {backend}; its log is in {store.logs}")
        command = [sys.executable, "-P", "-m", "supervisor", "engine", "build", "--backend", backend, "--no-use"]
        subprocess.run(command, check=True, stdout=sys.stderr)
    raise SystemExit(f"there is no engine for {backend}")


def _facts(engine: Path, backend: str, check: Check, seconds: float) -> dict[str, str]:
    said = subprocess.run([str(engine), "--version"], capture_output=True, text=True, timeout=60, check=False)
    version = next((line for line in (said.stdout + said.stderr).splitlines() if line.startswith("version")), "")
    devices = ", ".join(f"{name}: {text}" for name, text in check.devices.items()) or "none"
    return {
        "engine": f"{version.removeprefix('version: ')}, {backend}",
        "devices": devices,
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "context": f"{check.ctx:,} tokens, one slot",
        "took": f"{seconds:.0f} s",
    }


@contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    """A short folder that goes with the check: sockets live in it."""
    made = Path(tempfile.mkdtemp(prefix="gpuc-", dir=wanted))
    try:
        free = shutil.disk_usage(made).free / GIB
        say(f"models are written to {made}, with {free:.0f} GiB free")
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Late(BaseException):
    """The time limit; no library takes it for a timeout of its own."""


def _late(_number: int, _frame: FrameType | None) -> None:
    raise _Late


if __name__ == "__main__":
    sys.exit(main())
