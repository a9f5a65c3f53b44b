"""Times of the daemon beside the relay: from the engine's ready line to ours, and `bin/supervisor ps`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.servers import MODEL, daemon, post

_ROOT = Path(__file__).resolve().parent.parent

# Stands in for llama-server: runs it, passes its output on and notes when the line that says `ready` came.
_WITNESS = """#!{python}
import os, subprocess, sys, time
engine = subprocess.Popen([{binary!r}, *sys.argv[1:]], stdout=subprocess.PIPE)
for line in engine.stdout:
    now = time.time_ns()
    if b'"state":"ready"' in line:
        with open({note!r}, "w") as note:
            note.write(str(now))
    os.write(1, line)
sys.exit(engine.wait())
"""


def ready_after(binary: Path, model: Path, folder: Path, loads: int) -> list[float]:
    """Milliseconds from the engine's ready line to our answer to the request to load, for each of the loads."""
    folder.mkdir()
    note = folder / "ready"
    witness = folder / "llama-server"
    witness.write_text(_WITNESS.format(python=sys.executable, binary=str(binary), note=str(note)))
    witness.chmod(0o755)
    found = []
    with daemon(witness, model, folder, {}) as (_, url):
        for _ in range(loads):
            post(f"{url}/api/v1/models/load", {"target": MODEL})
            found.append((time.time_ns() - int(note.read_text())) / 1e6)
            post(f"{url}/api/v1/models/unload", {"model": MODEL})
    return found


def added_seconds(runs: int) -> float:
    """Median of what `bin/supervisor` adds to the program that it runs."""
    direct = [str(_ROOT / ".venv" / "bin" / "python"), "-I", "-m", "supervisor", "--version"]
    wrapped = [str(_ROOT / "bin" / "supervisor"), "--version"]
    added = []
    for _ in range(runs):
        times = []
        for command in (direct, wrapped):
            begun = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - begun)
        added.append(times[1] - times[0])
    return statistics.median(added)


def ps_seconds(url: str, runs: int) -> float | str:
    """Median wall time of `bin/supervisor ps`, or why it could not be measured."""
    command = [str(_ROOT / "bin" / "supervisor"), "ps", "--json"]
    env = {**os.environ, "SUPERVISOR_URL": url}
    first = subprocess.run(command, env=env, capture_output=True, text=True)  # may have to make the environment
    if first.returncode != 0:
        return f"bin/supervisor ps failed: {first.stderr.strip()}"
    json.loads(first.stdout)
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        subprocess.run(command, env=env, capture_output=True, check=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)
