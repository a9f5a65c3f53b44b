"""The engine against the real llama-server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.engines.client import EngineClient, EngineUnreachable
from supervisor.engines.engine import EngineLimits, LoadProgress
from supervisor.errors import EngineStartFailed
from supervisor.system.child import ExitStatus, StopGrace
from supervisor.system.paths import places
from tests.shell.engines import Bench
from tests.support.patience import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.log.close()


def oom_score_adj(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_it_starts_answers_and_stops(bench: Bench, engine_binary: Path, demo_model: Path) -> None:
    engine = bench.engine(engine_binary, model=demo_model, parallel=3)
    info = await bench.start(engine)
    assert info.n_slots == 3
    assert info.n_ctx is not None
    assert info.info["id"] == "test"
    assert bench.progress[-1].value == 1.0
    async with engine.client.get("/health") as response:
        assert await response.json() == {"status": "ok"}
    if sys.platform == "linux":
        ours, its = (oom_score_adj(pid) for pid in (os.getpid(), engine.pid))
        assert its == min(ours + 500, 1000), "where memory runs out it goes first"
    await engine.stop()
    assert await engine.exit == ExitStatus(0, None)
    assert any("exit command received" in line for line in engine.tail(10))
    bench.assert_nothing_left(engine)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), (b"GARBAGE" * 1000, "invalid magic"), (b"", "failed to")],
    ids=["missing", "garbage", "empty"],
)
async def test_a_bad_model_file_is_explained(
    bench: Bench, engine_binary: Path, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "bad.gguf"
    if content is not None:
        path.write_bytes(content)
    engine = bench.engine(engine_binary, model=path)
    with pytest.raises(EngineStartFailed, match="exit code 1") as caught:
        await bench.start(engine)
    assert reason in caught.value.log_lines[0]
    assert caught.value.log_lines[0] in caught.value.message
    bench.assert_nothing_left(engine)


async def test_a_truncated_model_file_is_explained(
    bench: Bench, engine_binary: Path, demo_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "half.gguf"
    shutil.copy(demo_model, path)
    os.truncate(path, os.stat(path).st_size - 100_000)
    engine = bench.engine(engine_binary, model=path)
    with pytest.raises(EngineStartFailed, match="within the file bounds"):
        await bench.start(engine)
    bench.assert_nothing_left(engine)


async def test_a_wrong_option_is_explained(bench: Bench, engine_binary: Path, demo_model: Path) -> None:
    engine = bench.engine(engine_binary, "--bogus", model=demo_model)
    with pytest.raises(EngineStartFailed, match="it said: error: invalid argument: --bogus"):
        await bench.start(engine)
    bench.assert_nothing_left(engine)


async def test_cancelling_while_it_loads_leaves_nothing(bench: Bench, engine_binary: Path, demo_model: Path) -> None:
    engine = bench.engine(engine_binary, model=demo_model)

    def cancel_once_loading(step: LoadProgress) -> None:
        if step.value is not None:
            task.cancel()

    task = asyncio.create_task(engine.start(cancel_once_loading))
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.assert_nothing_left(engine)


ENDLESS = {"prompt": "Hello", "n_predict": -1, "ignore_eos": True, "stream": True}


async def test_it_stops_at_once_in_the_middle_of_a_stream_of_ours(
    bench: Bench, engine_binary: Path, demo_model: Path
) -> None:
    engine = bench.engine(engine_binary, model=demo_model)
    await bench.start(engine)
    async with engine.client.post("/completion", json.dumps(ENDLESS).encode()) as response:
        assert (await response.read_some()).startswith(b"data: ")
        reader = asyncio.create_task(response.read())
        async with asyncio.timeout(PATIENCE):
            await engine.stop()
        with pytest.raises(EngineUnreachable):
            await reader
    assert await engine.exit == ExitStatus(0, None)
    bench.assert_nothing_left(engine)


async def test_an_engine_that_has_just_become_ready_stops_when_asked(
    bench: Bench, engine_binary: Path, demo_model: Path
) -> None:
    for _ in range(5):
        engine = bench.engine(engine_binary, model=demo_model)
        await bench.start(engine)
        await engine.stop()
        assert await engine.exit == ExitStatus(0, None), "by the exit line, not by a signal"


async def test_a_stream_that_nobody_closes_does_not_keep_it_alive(
    bench: Bench, engine_binary: Path, demo_model: Path
) -> None:
    limits = EngineLimits(grace=StopGrace(ask_s=0.3, term_s=0.3))
    engine = bench.engine(engine_binary, model=demo_model, limits=limits)
    await bench.start(engine)
    async with EngineClient(engine.socket).post("/completion", json.dumps(ENDLESS).encode()) as response:
        assert (await response.read_some()).startswith(b"data: ")
        async with asyncio.timeout(PATIENCE):
            await engine.stop()
    bench.assert_nothing_left(engine)


async def test_a_kill_from_outside_is_noticed_at_once(bench: Bench, engine_binary: Path, demo_model: Path) -> None:
    engine = bench.engine(engine_binary, model=demo_model)
    await bench.start(engine)
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    assert await asyncio.wait_for(engine.exit, PATIENCE) == ExitStatus(None, signal.SIGKILL)
    await engine.stop()
    bench.assert_nothing_left(engine)


async def test_a_very_long_home_is_no_obstacle(
    bench: Bench, engine_binary: Path, demo_model: Path, tmp_path: Path
) -> None:
    home = tmp_path / ("very-long-" * 20)
    home.mkdir()
    found = places({"HOME": str(home)})
    bench.runtime, bench.records = found.runtime, found.pid_records
    engine = bench.engine(engine_binary, model=demo_model)
    await bench.start(engine)
    await engine.stop()
    assert os.path.basename(engine.socket) not in os.listdir(bench.runtime)
    assert os.listdir(bench.records) == []
