"""Children are real processes here: small shell and Python programs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from supervisor.system import processes
from supervisor.system.child import Child, ExitStatus, StopGrace
from tests.shell.waiting import until, until_gone
from tests.support.daemon import wait_until
from tests.support.patience import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the programs are POSIX shell"),
]

PATIENT = StopGrace(ask_s=PATIENCE, term_s=PATIENCE)
HASTY = StopGrace(ask_s=0.05, term_s=0.05)


class Lines:
    """Collects output and lets a test wait for a line."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.err: list[bytes] = []

    async def wait_for(self, line: bytes) -> None:
        await until(lambda: line in self.out, f"the line {line!r}; got {self.out[-5:]}")

    async def pid_after(self, word: bytes) -> int:
        await until(lambda: any(line.startswith(word) for line in self.out), f"a line that starts with {word!r}")
        return int(next(line for line in self.out if line.startswith(word)).split()[1])


async def shell(script: str, lines: Lines, record_dir: Path | None = None) -> Child:
    return await spawn(("/bin/sh", "-c", script), lines, record_dir)


async def spawn(argv: tuple[str, ...], lines: Lines, record_dir: Path | None = None) -> Child:
    return await Child.spawn(
        argv,
        env={"PATH": os.environ["PATH"]},
        on_stdout=lines.out.append,
        on_stderr=lines.err.append,
        record_dir=record_dir,
    )


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def ended(child: Child) -> ExitStatus:
    return await asyncio.wait_for(child.exit, PATIENCE)


async def test_output_is_complete_when_the_exit_is_known() -> None:
    lines = Lines()
    child = await shell("printf 'one\\r\\n\\ntwo\\nrest'; printf 'bad' >&2; exit 3", lines)
    status = await ended(child)
    assert (status, str(status)) == (ExitStatus(3, None), "exit code 3")
    assert (lines.out, lines.err) == ([b"one", b"", b"two", b"rest"], [b"bad"])


async def test_the_status_names_the_signal() -> None:
    child = await shell("kill -KILL $$", Lines())
    assert str(await ended(child)) == "signal 9 (SIGKILL)"


async def test_a_kill_is_noticed() -> None:
    lines = Lines()
    child = await shell("echo up; exec sleep 600", lines)
    await lines.wait_for(b"up")
    os.kill(child.pid, signal.SIGKILL)
    assert (await ended(child)).signal == signal.SIGKILL


async def test_the_environment_is_exactly_what_is_given() -> None:
    lines = Lines()
    program = "import os; print(sorted(k for k in os.environ if k != 'LC_CTYPE'))"
    await ended(await spawn((sys.executable, "-I", "-S", "-c", program), lines))
    assert lines.out == [b"['PATH']"]


async def test_a_missing_program_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await spawn((str(tmp_path / "none"),), Lines(), tmp_path)
    assert os.listdir(tmp_path) == []


async def test_a_flood_is_drained_and_what_is_left_out_is_counted() -> None:
    lines = Lines()
    program = "import sys; [sys.stderr.write(f'{n}\\n') for n in range(100_000)]; sys.stdout.write('y' * 3_000_000)"
    child = await spawn((sys.executable, "-I", "-S", "-c", program), lines)
    assert str(await ended(child)) == "exit code 0"
    left_out = [line for line in lines.err if b"left out" in line]
    told = [int(line) for line in lines.err if line not in left_out]
    assert told[0] == 0
    assert told[-1] == 99_999
    assert told == sorted(set(told))
    assert len(told) + sum(int(line.split()[0][1:]) for line in left_out) == 100_000
    assert b"".join(lines.out) == b"y" * 3_000_000
    assert max(map(len, lines.out)) < 2_000_000, "memory is bounded by cutting endless lines"


async def test_what_is_in_the_pipe_is_told_however_late_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's process may hold the output open for ever, and ours may not have been let run for seconds."""
    monkeypatch.setattr("supervisor.system.child._DRAIN_S", 0.0)
    lines = Lines()
    program = "import os, sys; sys.stdout.write('y' * 60_000); sys.stdout.flush(); os.fork() or os.system('sleep 9')"
    child = await spawn((sys.executable, "-I", "-S", "-c", program), lines)
    wait_until(lambda: not is_alive(child.pid), "it has ended while the loop stood still")
    assert str(await ended(child)) == "exit code 0"
    assert b"".join(lines.out) == b"y" * 60_000


async def test_a_burst_is_told_whole() -> None:
    lines = Lines()
    program = "import sys; [sys.stderr.write(f'{n}\\n') for n in range(15_000)]"
    await ended(await spawn((sys.executable, "-I", "-S", "-c", program), lines))
    assert lines.err == [b"%d" % n for n in range(15_000)]


async def test_lines_without_end_cost_those_who_wait_next_to_nothing() -> None:
    """A grammar that an engine cannot read it prints whole, and a client may send one of 20 million line ends."""
    lines = Lines()
    program = "import sys; [sys.stderr.write('\\n' * (1 << 20)) for _ in range(20)]; sys.stderr.write('why\\n')"
    await ended(await spawn((sys.executable, "-I", "-S", "-c", program), lines))
    assert len(lines.err) < 100_000
    assert lines.err[-1] == b"why"


async def test_it_leads_a_session_of_its_own() -> None:
    child = await shell("read line", Lines())
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    await child.stop(ask=b"", grace=PATIENT)


async def test_asking_is_enough_where_it_is_obeyed() -> None:
    lines = Lines()
    child = await shell("read line; echo got $line; exit 7", lines)
    assert await child.stop(ask=b"please go", grace=PATIENT) == ExitStatus(7, None)
    assert lines.out == [b"got please go"]


async def test_sigterm_comes_after_the_asking_grace() -> None:
    lines = Lines()
    child = await shell("trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done", lines)
    await lines.wait_for(b"up")
    assert await child.stop(ask=b"go", grace=StopGrace(ask_s=0.05, term_s=PATIENCE)) == ExitStatus(5, None)


async def test_sigterm_comes_a_second_time_before_sigkill() -> None:
    lines = Lines()
    script = "n=0; trap 'n=$((n+1)); echo $n; test $n = 2 && exit 8' TERM; echo up; while :; do sleep 0.01; done"
    child = await shell(script, lines)
    await lines.wait_for(b"up")
    assert await child.stop(ask=None, grace=StopGrace(term_s=2)) == ExitStatus(8, None)
    assert lines.out == [b"up", b"1", b"2"]


async def test_stdin_ends_with_sigterm() -> None:
    lines = Lines()
    child = await shell("trap '' TERM; echo up; cat; exit 4", lines)
    await lines.wait_for(b"up")
    assert await child.stop(ask=None, grace=PATIENT) == ExitStatus(4, None)


async def test_sigkill_ends_what_ignores_everything() -> None:
    lines = Lines()
    child = await shell("trap '' TERM; echo up; while :; do sleep 600; done", lines)
    await lines.wait_for(b"up")
    assert await child.stop(ask=b"go", grace=HASTY) == ExitStatus(None, signal.SIGKILL)
    assert processes.session_members(child.pid) == ()


async def test_concurrent_stops_share_one_and_later_ones_are_free() -> None:
    lines = Lines()
    child = await shell("n=0; while read line; do n=$((n+1)); echo $n; test $line = go && exit 0; done", lines)
    first, second = await asyncio.gather(*(child.stop(ask=b"go", grace=PATIENT) for _ in range(2)))
    assert first == second == await child.stop(ask=b"go", grace=PATIENT) == ExitStatus(0, None)
    assert lines.out == [b"1"]


async def test_a_cancelled_caller_does_not_end_the_stop() -> None:
    lines = Lines()
    child = await shell("trap 'echo term; sleep 0.2; exit 6' TERM; echo up; while :; do sleep 0.01; done", lines)
    await lines.wait_for(b"up")
    caller = asyncio.create_task(child.stop(ask=None, grace=PATIENT))
    await lines.wait_for(b"term")
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()
    assert await ended(child) == ExitStatus(6, None)


async def test_cancelling_one_who_waits_for_the_exit_spoils_it_for_nobody() -> None:
    child = await shell("read line", Lines())
    waiter = asyncio.ensure_future(child.exit)
    waiter.cancel()
    await asyncio.wait({waiter})
    assert await child.stop(ask=b"", grace=PATIENT) == ExitStatus(0, None)


@pytest.mark.parametrize("background", ["sleep 600 &", "(sleep 600; sleep 600) &", "set -m; sleep 600 &"])
async def test_what_the_child_forked_ends_with_it(background: str) -> None:
    lines = Lines()
    child = await shell(f"{background} echo forked $!; read line", lines)
    grandchild = await lines.pid_after(b"forked")
    await child.stop(ask=b"", grace=PATIENT)
    await until_gone(grandchild)


async def test_a_process_that_holds_the_pipes_from_another_session_does_not_delay_the_exit_for_ever() -> None:
    lines = Lines()
    program = "import subprocess; print('left', subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    child = await spawn((sys.executable, "-I", "-S", "-c", program), lines)
    try:
        assert await ended(child) == ExitStatus(0, None)
    finally:
        os.kill(await lines.pid_after(b"left"), signal.SIGKILL)


async def test_writing_to_a_dead_child_is_no_error() -> None:
    child = await shell("exit 0", Lines())
    await ended(child)
    child.write_line(b"anybody there?")
    assert await child.stop(ask=b"go", grace=PATIENT) == ExitStatus(0, None)


async def test_the_record_exists_exactly_while_the_child_does(tmp_path: Path) -> None:
    child = await shell("read line", Lines(), tmp_path / "children")
    assert os.listdir(tmp_path / "children") == [f"{child.pid}.json"]
    await child.stop(ask=b"", grace=PATIENT)
    assert os.listdir(tmp_path / "children") == []


async def test_a_child_that_cannot_be_recorded_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lines = Lines()
    with pytest.raises(OSError, match="file"):
        await shell("echo pid $$; read line", lines, tmp_path / "file")
    if lines.out:
        assert not processes.is_running(int(lines.out[0].split()[1]))


_DAEMON = """
import asyncio, os, sys, uvloop
from supervisor.system.child import Child
async def main():
    child = await Child.spawn(sys.argv[1:], env=dict(os.environ), on_stdout=print, on_stderr=print, record_dir=None)
    print("child", child.pid, flush=True)
    await child.exit
with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv.pop(1) == "uvloop" else None) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("read line; exit 1", id="that minds its stdin"),
        pytest.param(
            "exec sleep 600",
            id="that does not",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal"),
        ),
    ],
)
async def test_a_killed_daemon_takes_its_child_along(script: str, anyio_backend: tuple[str, dict[str, bool]]) -> None:
    loop = "uvloop" if anyio_backend[1]["use_uvloop"] else "asyncio"
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DAEMON, loop, "/bin/sh", "-c", script, stdout=subprocess.PIPE
    )
    assert daemon.stdout is not None
    pid = int((await daemon.stdout.readline()).split()[1])
    assert processes.is_running(pid)
    daemon.kill()
    await daemon.wait()
    await until_gone(pid)


async def test_the_child_survives_the_end_of_a_thread_that_spawned_it() -> None:
    """The kernel's parent-death signal means the thread: off the main thread it must not be asked for."""
    hooks: list[Callable[[], None] | None] = []
    await asyncio.to_thread(lambda: hooks.append(processes.parent_death_hook()))
    assert hooks == [None]
    assert (processes.parent_death_hook() is None) == (sys.platform != "linux")
