"""How much memory an engine may come to hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.memory import Growth
from supervisor.core.memory.watch import allowed_bytes, outgrown
from supervisor.system.processes import anonymous_bytes

GIB = 1 << 30
SLACK = 256 << 20


def test_what_is_planned_and_what_may_grow_count() -> None:
    assert allowed_bytes(GIB, (), 0.5) == GIB * 3 // 2 + SLACK
    assert allowed_bytes(GIB, (Growth("prompt cache", GIB), Growth("states", GIB)), 1.0) == 6 * GIB + SLACK
    assert allowed_bytes(GIB, (Growth("prompt cache", None),), 0.5) is None


def test_a_plan_that_was_wrong_from_the_start_is_no_growth() -> None:
    assert outgrown(3 * GIB, 2 * GIB, first=GIB, share=0.5)
    assert not outgrown(2 * GIB, 2 * GIB, first=GIB, share=0.5)
    assert not outgrown(3 * GIB, GIB, first=3 * GIB, share=0.5)
    assert outgrown(5 * GIB, GIB, first=3 * GIB, share=0.5)


def test_pages_of_the_models_file_are_no_leak(tmp_path: Path) -> None:
    """What an engine maps from a file is not what it is said to hold, however much of it is in memory."""
    file = tmp_path / "weights"
    file.write_bytes(bytes(64 << 20))
    script = (
        "import mmap,sys; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ);"
        "n=sum(m[i] for i in range(0,len(m),4096)); print('read',flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout
        assert reader.stdin
        assert reader.stdout.readline() == b"read\n"
        held = anonymous_bytes(reader.pid)
        reader.stdin.close()
    if held is None:
        pytest.skip("this platform does not tell anonymous memory")
    assert held < 48 << 20
