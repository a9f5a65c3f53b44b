"""A process executes another program and keeps its children: their output, their end, and the way to end them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.system.adopted import NotOurs, check_ours
from supervisor.system.processes import create_time
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a child is adopted on Linux alone")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, os, sys
import msgspec, uvloop
from supervisor.core.takeover.carried import HeldProcess
from supervisor.system.child import Child, StopGrace

SCRIPT = "echo whole; printf 'a li'; read word; printf 'ne\\\\n'; echo $word >&2; read rest; exit 3"
END = os.environ["END"]

async def main():
    lines, arrived = [], asyncio.Event()
    def hear(line):
        lines.append(line.decode())
        arrived.set()
    async def until(count):
        while len(lines) < count:
            await arrived.wait()
            arrived.clear()
    if len(sys.argv) == 1:
        child = await Child.spawn(("/bin/sh", "-c", SCRIPT), env={}, on_stdout=hear, on_stderr=hear, record_dir=None)
        await until(1)
        while not child.held().unread[0]:
            await asyncio.sleep(0)
        held = child.held()
        for one in held.pipes:
            os.set_inheritable(one, True)
        told = msgspec.json.encode(held).decode()
        os.execv(sys.executable, [sys.executable, "-P", "-c", os.environ["PROGRAM"], told])
    held = msgspec.json.decode(sys.argv[1], type=HeldProcess)
    child = await Child.adopt(held, on_stdout=hear, on_stderr=hear)
    assert child.held().pipes == held.pipes
    child.write_line(b"word")
    await until(2)
    if END == "itself":
        child.write_line(b"")
        how = await child.exit
    elif END == "stopped":
        how = await child.stop(ask=None, grace=StopGrace(0, 60))
    else:
        child.disown()
        child.kill()
        assert child.let_go() == (b"", b"")
        how = await child.stop(ask=None, grace=StopGrace(0, 0))
        os.kill(child.pid, 0)
        os.kill(child.pid, 9)
        os.waitpid(child.pid, 0)
    print(how, sorted(lines))

with asyncio.Runner(loop_factory=uvloop.new_event_loop if os.environ["LOOP"] == "uvloop" else None) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("end", "how"), [("itself", "exit code 3"), ("stopped", "signal 15 (SIGTERM)"), ("disowned", "never started")]
)
def test_a_child_is_adopted_by_the_next_image(loop: str, end: str, how: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LOOP": loop, "PROGRAM": PROGRAM, "END": end}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{how} ['a line', 'word']"


def test_only_a_living_child_of_ours_is_adopted() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as child:
        started = create_time(child.pid)
        assert started is not None
        check_ours(child.pid, started)
        with pytest.raises(NotOurs, match="another one"):
            check_ours(child.pid, started - 60)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(NotOurs, match="has ended"):
            check_ours(child.pid, started)
    with pytest.raises(NotOurs, match="no child of ours"):
        check_ours(child.pid, started)
    with pytest.raises(NotOurs, match="no child of ours"):
        check_ours(os.getppid(), create_time(os.getppid()) or 0.0)
