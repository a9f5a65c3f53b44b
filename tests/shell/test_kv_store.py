"""Saved slots against the real engine: what is saved is taken up again, and what goes wrong hurts nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from supervisor.core.launch import LaunchOptions, ModelFacts, build_launch
from supervisor.core.launch.keeping import kept
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.llama.manner import Attendants, llama_engine
from supervisor.engines.llama.slots import SlotKeeper, SlotStore
from supervisor.engines.log import OutputLog
from supervisor.system.sockets import fresh_socket
from tests.support.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

MIB = 1 << 20
LONG = "word " * 100
OTHER = "other " * 80
FLAGS = {"--slot-save-path": True, "--no-cache-idle-slots": False}


class Bench:
    """Engines of one model whose slots are kept in one folder."""

    def __init__(self, binary: Path, model: Path, folder: Path) -> None:
        self.binary, self.model, self.folder = binary, model, folder
        self.log = OutputLog(folder / "engine.log")
        self.names = iter(f"file{number}" for number in range(100))
        self.store = self.stores(64 * MIB)

    def stores(self, max_bytes: int, within: float = 15.0) -> SlotStore:
        return SlotStore(self.folder / "kv", max_bytes, within=within, file_name=lambda: next(self.names))

    @asynccontextmanager
    async def engine(self, keeper: SlotKeeper | None = None, **more: str) -> AsyncIterator[Engine]:
        keeper = keeper or self.keeper()
        options = kept(LaunchOptions(ctx_size=16384, parallel=3, threads=1), str(keeper.folder), FLAGS)
        socket = str(fresh_socket(self.folder / "run"))
        launch = build_launch(str(self.binary), str(self.model), socket, "m", options, ModelFacts())
        engine = llama_engine(
            launch,
            log=self.log,
            record_dir=self.folder / "children",
            limits=EngineLimits(),
            attendants=Attendants(keeper=keeper),
        )
        try:
            await engine.start(lambda progress: None)
            yield engine
        finally:
            await engine.stop()

    def keeper(self, bytes_per_token: int = 64) -> SlotKeeper:
        return self.store.keeper("key", "m", bytes_per_token)

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "kv").glob("*/*"))


@pytest.fixture
def bench(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(engine_binary, scripted_model("Hi."), tmp_path)
    yield bench
    bench.log.close()


async def processed(engine: Engine, text: str) -> tuple[int, int]:
    """Tokens of the prompt that were processed, and that were there already."""
    body = json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 4}).encode()
    async with engine.client.post("/v1/chat/completions", body) as answer:
        timings = (await answer.json())["timings"]
    return timings["prompt_n"], timings["cache_n"]


async def test_conversations_survive_the_engine(bench: Bench) -> None:
    async with bench.engine() as engine:
        first, cached = await processed(engine, LONG)
        assert (first > 400, cached) == (True, 0)
        await processed(engine, OTHER)
        await engine.park()
    assert len(bench.files()) == 2
    assert (bench.folder / "kv").stat().st_mode & 0o777 == 0o700
    async with bench.engine() as engine:
        assert (await processed(engine, LONG))[0] <= 1
        assert (await processed(engine, OTHER))[0] <= 1
        assert (await processed(engine, LONG + "and more"))[0] < 40
        await engine.park()
    assert len(bench.files()) == 2, "the new ones are in the place of those they came from"


async def test_a_conversation_that_did_not_go_on_survives_all_the_same(bench: Bench) -> None:
    """Its slot was filled and not used, so that the engine has nothing new to save of it."""
    async with bench.engine() as engine:
        await processed(engine, LONG)
        await processed(engine, OTHER)
        await engine.park()
    for _ in range(2):
        async with bench.engine() as engine:
            assert (await processed(engine, LONG))[0] <= 1
            await engine.park()
        assert len(bench.files()) == 2
    async with bench.engine() as engine:
        assert (await processed(engine, OTHER))[0] <= 1


async def test_without_parking_nothing_is_kept(bench: Bench) -> None:
    async with bench.engine() as engine:
        first, _ = await processed(engine, LONG)
    assert bench.files() == []
    async with bench.engine() as engine:
        assert await processed(engine, LONG) == (first, 0)


async def test_a_crash_after_restoring_loses_nothing(bench: Bench) -> None:
    async with bench.engine() as engine:
        await processed(engine, LONG)
        await engine.park()
    before = bench.files()
    async with bench.engine() as engine:
        engine.kill()
        await engine.exit
        await engine.park()
    assert bench.files() == before
    async with bench.engine() as engine:
        assert (await processed(engine, LONG))[0] <= 1


async def test_a_full_disk_is_said_and_what_there_was_stays(bench: Bench) -> None:
    async with bench.engine() as engine:
        await processed(engine, LONG)
        await engine.park()
    (old,) = bench.files()
    async with bench.engine() as engine:
        await processed(engine, LONG + "and more")
        (bench.folder / "kv" / "key" / "file1.busy").symlink_to("/dev/full")
        with structlog.testing.capture_logs() as said:
            await engine.park()
    assert bench.files() == [old]
    (failed,) = [entry for entry in said if entry["event"] == "kv_not_saved"]
    assert (failed["log_level"], failed["model"]) == ("warning", "m")
    assert "Unable to save slot" in failed["reason"]
    async with bench.engine() as engine:
        assert (await processed(engine, LONG))[0] <= 1


@pytest.mark.parametrize("damage", [lambda data: data[:200], lambda data: b"", lambda data: b"\xff" * len(data)])
async def test_a_damaged_file_is_dropped_and_the_engine_starts(bench: Bench, damage: Callable[[bytes], bytes]) -> None:
    async with bench.engine() as engine:
        first, _ = await processed(engine, LONG)
        await engine.park()
    (path,) = (bench.folder / "kv").glob("*/*")
    path.write_bytes(damage(path.read_bytes()))
    with structlog.testing.capture_logs() as said:
        async with bench.engine() as engine:
            assert await processed(engine, LONG) == (first, 0)
    assert [entry["event"] for entry in said] == ["kv_not_restored"]
    assert bench.files() == []


async def test_the_budget_drops_the_oldest(bench: Bench) -> None:
    async with bench.engine() as engine:
        await processed(engine, LONG)
        await engine.park()
    (first,) = (bench.folder / "kv").glob("*/*")
    os.utime(first, (1, 1))
    bench.store = bench.stores(first.stat().st_size + 1000)
    other = bench.store.keeper("another", "n", 64)
    async with bench.engine(other) as engine:
        await processed(engine, OTHER)
        await engine.park()
    assert not first.exists()
    assert len(bench.files()) == 1


@pytest.mark.parametrize("bytes_per_token", [MIB, 1 << 50])
async def test_what_is_too_large_is_not_even_written(bench: Bench, bytes_per_token: int) -> None:
    async with bench.engine(bench.keeper(bytes_per_token)) as engine:
        await processed(engine, LONG)
        with structlog.testing.capture_logs() as said:
            await engine.park()
    assert bench.files() == []
    assert "kv_store.max_mib" in said[0]["reason"]


async def test_an_engine_that_hangs_is_not_waited_for(bench: Bench) -> None:
    bench.store = bench.stores(64 * MIB, within=0.3)
    async with bench.engine() as engine:
        await processed(engine, LONG)
        assert engine.pid is not None
        os.kill(engine.pid, 19)  # SIGSTOP
        with structlog.testing.capture_logs() as said:
            await engine.park()
        os.kill(engine.pid, 9)
    assert bench.files() == []
    assert said[0]["reason"] == "it took too long"


async def test_leftovers_of_a_killed_daemon_are_swept(bench: Bench) -> None:
    keeper = bench.keeper()
    (keeper.folder / "half.busy").write_bytes(b"x")
    (keeper.folder / "whole.slot").write_bytes(b"x")
    bench.store.sweep()
    assert bench.files() == ["whole.slot"]
