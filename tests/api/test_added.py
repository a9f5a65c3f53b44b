"""How many models loads may add: every list tells of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from supervisor.config import Settings
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.schedule import Pins
from supervisor.errors import InvalidRequest, ModelNotFound
from supervisor.planning.planner import Planner
from supervisor.pool.pool import Pool
from supervisor.probe.profiles import load_profile
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.service.added import MOST_ADDED, Added, Forgetting
from supervisor.service.build import Parts, plans_alone, without_daemon
from supervisor.service.enginelogs import EngineLogs
from supervisor.service.loads import Loads
from supervisor.service.remarks import Remarks
from supervisor.service.resolve import Asked
from supervisor.service.status import Remark
from supervisor.service.statuses import Statuses
from supervisor.service.trials import Trials
from supervisor.system.paths import places
from tests.shell.pools import PoolBench
from tests.shell.waiting import until


def added(name: str) -> ModelEntry:
    return ModelEntry(name, Source.FILE, f"/{name}.gguf")


@dataclass
class Bench:
    """Loads of these models; `own` is of the configuration."""

    parts: Parts
    pool: Pool
    folder: Path

    def __post_init__(self) -> None:
        self.registry = self.parts.registry
        self.planner = planner = Planner(self.registry, self.parts.kinds, self.parts.lookout)
        pins, self.remarks = Pins(self.registry.policy_of), Remarks()
        logs = EngineLogs(lambda model: self.folder / f"{model}.log")
        forget = Forgetting(
            self.registry, planner, self.pool, pins, self.remarks, logs, self.parts.variants, ToolCalls()
        )
        statuses = Statuses(self.registry, self.pool, planner, pins, self.remarks, {}, float)
        self.added = Added(self.registry, self.pool, statuses, lambda model: model == "own", forget)
        self.loads = Loads(
            registry=self.registry,
            pool=self.pool,
            resolver=self.parts.resolver(self.pool),
            plans=plans_alone(self.parts, self.pool),
            kinds=self.parts.kinds,
            planner=planner,
            remarks=self.remarks,
            trials=Trials(self.registry, self.pool),
            added=self.added,
            statuses=statuses,
        )


def on_bench(
    folder: Path, entries: list[ModelEntry], act: Callable[[Bench], Any], engine: Path | str = "", **more: Any
) -> Registry:
    """What there is after `act`, which may be a coroutine function. `more`: as for `PoolBench`."""
    env = {"SUPERVISOR_LLAMA_SERVER": str(engine)} if engine else {}
    env |= {"HOME": str(folder), "SUPERVISOR_HOME": str(folder / "s"), "PATH": "", "HF_HUB_OFFLINE": "1"}

    async def go() -> Registry:
        with without_daemon(Settings(), places(env), env, load_profile("1x8gb")) as parts:
            parts.registry.become(Registry(entries))
            async with PoolBench("none", folder / "none.gguf", folder, **more).pool() as pool:
                done = act(Bench(parts, pool, folder))
                if asyncio.iscoroutine(done):
                    await done
            return parts.registry

    return asyncio.run(go())


def test_the_oldest_model_that_a_load_added_goes_for_one_too_many(tmp_path: Path) -> None:
    entries = [added("own"), *(added(f"m{number}") for number in range(MOST_ADDED - 1))]

    def act(bench: Bench) -> None:
        bench.added.make_place()
        assert "m0" in bench.registry
        bench.registry.add(added("last"))
        bench.added.make_place()

    registry = on_bench(tmp_path, entries, act)
    assert "own" in registry
    assert "m1" in registry
    with pytest.raises(ModelNotFound, match="any more: loads have added"):
        registry.find("m0")


def names(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last)]


def begin(bench: Bench, models: list[str]) -> None:
    """Load them for the first time; it takes for ever."""
    for model in models:
        bench.pool.ask_load(model)
        bench.added.begin(model)


@pytest.mark.engine
def test_what_was_read_of_a_model_goes_with_it(tmp_path: Path, talker: Path, engine_binary: Path) -> None:
    async def act(bench: Bench) -> None:
        for number in range(3):
            bench.registry.add(ModelEntry(f"m{number}", Source.FILE, str(talker)))
            await bench.planner.fetch_and_read(f"m{number}", bench.pool)
            assert bench.planner.read(f"m{number}") is not None
            if number < 2:
                bench.added.forget(f"m{number}")
        assert [bench.planner.read(name) is not None for name in names(0, 3)] == [False, False, True]

    on_bench(tmp_path, [added("own")], act, engine_binary)


def test_one_that_is_being_loaded_stays(tmp_path: Path) -> None:
    every = names(0, MOST_ADDED)

    async def act(bench: Bench) -> None:
        begin(bench, every[:2])
        bench.added.make_place()
        assert {"m0", "m1"} <= {entry.id for entry in bench.registry}
        assert "m2" not in bench.registry
        bench.registry.add(added("last"))
        begin(bench, [*every[3:], "last"])
        with pytest.raises(InvalidRequest, match="all in use"):
            bench.added.make_place()

    sizes = dict.fromkeys([*every, "last"], 10)
    on_bench(tmp_path, [added("own"), *map(added, every)], act, sizes=sizes, endless=frozenset(sizes))


def test_nothing_is_kept_of_what_was_to_be_said_of_a_load_that_is_refused(tmp_path: Path, talker: Path) -> None:
    """Clients may ask for models without end; each under another name."""
    every = names(0, MOST_ADDED)

    async def act(bench: Bench) -> None:
        begin(bench, every)
        with pytest.raises(InvalidRequest, match="all in use"):
            await bench.loads.ask(Asked(str(talker)))
        assert bench.remarks.of(talker.stem) == Remark()
        assert talker.stem not in bench.registry

    sizes = dict.fromkeys(every, 10)
    on_bench(tmp_path, [added(name) for name in every], act, sizes=sizes, endless=frozenset(every))


def test_what_is_found_out_meanwhile_is_said_of_a_model_that_is_still_there(tmp_path: Path) -> None:
    every = ("here", "gone")

    async def act(bench: Bench) -> None:
        for name in every:
            await bench.loads.ask(Asked(name), at_once=True)
            bench.remarks.set(name, Remark("n"))
        bench.registry.forget("gone")
        await until(lambda: bench.remarks.of("gone") == Remark(), "nothing is said of it any more")
        assert bench.remarks.of("here") == Remark("n")

    entries = [ModelEntry(name, Source.HUB, None, hub=f"o/{name}:Q4_0") for name in every]
    on_bench(tmp_path, entries, act, sizes=dict.fromkeys(every, 10), endless=frozenset(every))
