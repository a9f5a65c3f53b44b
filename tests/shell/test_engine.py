"""The engine against a stand-in that misbehaves as the real one cannot be made to."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.engines.engine import EngineLimits, LoadProgress
from supervisor.errors import EngineStalled, EngineStartFailed
from supervisor.system import processes
from supervisor.system.child import ExitStatus, StopGrace
from tests.fakes import install_fake
from tests.shell.engines import Bench
from tests.shell.waiting import until, until_gone
from tests.support.patience import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="engines listen on Unix sockets"),
]

HASTY = EngineLimits(grace=StopGrace(ask_s=0.05, term_s=0.05))
STALLS_SOON = EngineLimits(stall_s=3, grace=HASTY.grace)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.log.close()


@pytest.fixture
def fake(tmp_path: Path) -> str:
    return install_fake(tmp_path)


async def test_ready_is_what_the_engine_says(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--hang-health")
    info = await bench.start(engine)
    assert (info.n_ctx, info.info["id"]) == (4096, "fake")
    assert bench.progress[0] == LoadProgress("starting", None)
    assert [step.value for step in bench.progress[1:]] == [step / 10 for step in range(10)]
    await engine.stop()
    assert await engine.exit == ExitStatus(0, None)
    bench.assert_nothing_left(engine)


async def test_ready_tells_the_context_and_the_slots(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake)
    info = await bench.start(engine)
    assert (info.n_ctx, info.n_slots) == (4096, 2)
    await engine.stop()


async def test_a_build_without_state_lines_is_asked_on_health(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--no-protocol", "--close-stdout")
    info = await bench.start(engine)
    assert (info.n_ctx, info.n_slots, info.info) == (4096, 2, {})
    await engine.stop()
    assert await engine.exit == ExitStatus(None, signal.SIGTERM)
    bench.assert_nothing_left(engine)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        (("--exit-code", "0"), "exit code 0"),
        (("--exit-code", "3"), "exit code 3"),
        (("--exit-signal", "6"), r"signal 6 \(SIGABRT\)"),
        (("--exit-signal", "9"), r"The kernel probably .* memory.*signal 9 \(SIGKILL\)"),
        (("--exit-code", "1", "--no-protocol"), "exit code 1"),
    ],
)
async def test_an_exit_before_ready_says_how_and_why(
    bench: Bench, fake: str, knobs: tuple[str, ...], reason: str
) -> None:
    engine = bench.engine(fake, "--exit-before-ready", "--last-words", "0.1 E disk: it broke", *knobs)
    with pytest.raises(EngineStartFailed, match=f"{reason}.*; it said: disk: it broke") as caught:
        await bench.start(engine)
    assert caught.value.log_lines == ("disk: it broke",)
    bench.assert_nothing_left(engine)


async def test_the_reason_is_not_taken_from_an_earlier_start(bench: Bench, fake: str) -> None:
    for words in ("E first: bad", "nothing of note"):
        engine = bench.engine(fake, "--exit-before-ready", "--last-words", words)
        with pytest.raises(EngineStartFailed) as caught:
            await bench.start(engine)
    assert "first: bad" not in caught.value.log_lines
    assert caught.value.log_lines[-1] == "nothing of note"


@pytest.mark.parametrize("knobs", [("--hang-health",), ("--hang-health", "--no-protocol"), ()], ids=" ".join)
async def test_standing_still_is_a_stall(bench: Bench, fake: str, knobs: tuple[str, ...]) -> None:
    engine = bench.engine(fake, "--stall-after", "0", *knobs, limits=STALLS_SOON)
    with pytest.raises(EngineStalled, match=r"no sign of life for \d+ s"):
        await bench.start(engine)
    bench.assert_nothing_left(engine)


@pytest.mark.parametrize("knobs", [("--load-time", "8"), ("--busy", "5"), ("--busy", "5", "--no-protocol")])
async def test_slow_is_not_stalled(bench: Bench, fake: str, knobs: tuple[str, ...]) -> None:
    engine = bench.engine(fake, *knobs, limits=STALLS_SOON)
    await bench.start(engine)
    await engine.stop()


async def test_cancelling_while_it_loads_ends_it(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--stall-after", "0")
    task = await bench.starting(engine)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.assert_nothing_left(engine)


async def test_cancelling_twice_ends_it_too(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--stall-after", "0", "--ignore-sigterm", limits=HASTY)
    task = await bench.starting(engine)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.wait_for(engine.exit, PATIENCE)
    bench.assert_nothing_left(engine)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 6, 10])
async def test_cancelling_at_any_moment_of_the_spawn_leaves_nothing(bench: Bench, fake: str, steps: int) -> None:
    engine = bench.engine(fake, limits=HASTY)
    task = asyncio.create_task(bench.start(engine))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await engine.stop()
    bench.assert_nothing_left(engine)


async def test_stopping_while_it_loads_fails_the_start(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--stall-after", "0")
    task = await bench.starting(engine)
    await engine.stop()
    with pytest.raises(EngineStartFailed, match="SIGTERM"):
        await task
    bench.assert_nothing_left(engine)


async def test_stops_share_one_and_end_what_ignores_them(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--ignore-sigterm", "--ignore-exit-line", "--fork-child", limits=HASTY)
    await bench.start(engine)
    await until(lambda: any("forked" in line for line in engine.tail(50)), "the fork")
    forked = int(next(line for line in engine.tail(50) if "forked" in line).split()[-1])
    assert processes.is_running(forked)
    await asyncio.gather(engine.stop(), engine.stop())
    await engine.stop()
    assert await engine.exit == ExitStatus(None, signal.SIGKILL)
    await until_gone(forked)
    bench.assert_nothing_left(engine)


async def test_a_kill_from_outside_is_noticed_at_once(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--fork-child")
    await bench.start(engine)
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    assert await asyncio.wait_for(engine.exit, PATIENCE) == ExitStatus(None, signal.SIGKILL)
    bench.assert_nothing_left(engine)
    await engine.stop()


async def test_output_of_any_kind_is_kept_and_blocks_nothing(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake, "--flood", "5000", "--long-line", "3000000")
    await bench.start(engine)
    await engine.stop()
    kept = b"".join(path.read_bytes() for path in bench.folder.glob("engine.log*"))
    assert kept.count(b"I flood") == 5000
    assert kept.count(b"x") >= 3_000_000


async def test_an_engine_is_started_once(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake)
    await bench.start(engine)
    with pytest.raises(EngineStartFailed, match="started once"):
        await bench.start(engine)
    assert not engine.exit.done()
    await engine.stop()
    bench.assert_nothing_left(engine)


async def test_an_engine_that_was_stopped_first_never_starts(bench: Bench, fake: str) -> None:
    engine = bench.engine(fake)
    await engine.stop()
    assert str(await engine.exit) == "never started"
    with pytest.raises(EngineStartFailed, match="not after it was stopped"):
        await bench.start(engine)
    assert engine.pid is None


async def test_a_program_that_cannot_run_is_named(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "noexec").write_text("no program")
    for name, reason in (("none", "No such file"), ("noexec", "Permission denied")):
        engine = bench.engine(str(tmp_path / name))
        with pytest.raises(EngineStartFailed, match=f"{name} could not be started: .*{reason}"):
            await bench.start(engine)
        assert str(await engine.exit) == "never started"
        bench.assert_nothing_left(engine)
