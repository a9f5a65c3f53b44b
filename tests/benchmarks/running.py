"""Run a benchmark as a person would, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
_LONGEST = 4 * PATIENCE  # seconds; several servers start, and a busy machine takes its time


def run_benchmark(
    name: str, *arguments: str, env: Mapping[str, str] | None = None, codes: Collection[int] = (0,)
) -> str:
    """Return what `benchmarks.NAME` prints. One that does not end is interrupted, so that it ends its servers.

    codes: with which it may end.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", f"benchmarks.{name}", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    )
    try:
        out, err = process.communicate(timeout=_LONGEST)
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        raise
    assert process.returncode in codes, err
    return out
