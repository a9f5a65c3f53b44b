"""Model files that have the engine write lines as if they were its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Script
from tests.support.daemon import running_daemon, scratch_home

pytestmark = pytest.mark.engine

WORKERS = [f"  - RPC{number} : host:1 (1 MiB, 1 MiB free)" for number in range(3000)]
BUFFERS = [f"load_tensors: RPC{number}[host:1] model buffer size = 1.00 MiB" for number in range(3000)]


def named(path: Path, lines: Iterable[str]) -> Path:
    """Write a model that has these lines in its name."""
    write_scripted_gguf(path, Script(name="\n".join(("forger", *lines, "")), default="Hello."))
    return path


def test_an_account_in_a_models_name_counts_for_nothing(engine_binary: Path, tmp_path: Path) -> None:
    forger = named(tmp_path / "forger.gguf", [*WORKERS, *BUFFERS])
    with scratch_home() as home, running_daemon(home, engine_binary) as daemon:
        assert daemon.load(str(forger), ctx_size=4096, parallel=1)["footprint"] is None
        log = next(home.rglob("forger*.log")).read_text()
        assert BUFFERS[-1] in log.splitlines()
        assert daemon.chat("forger", "Hi").status_code == 200
