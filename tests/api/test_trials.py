"""What was given with a load, until it shows whether it comes up: one trial for each model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.errors import ModelFileError
from supervisor.service.trials import Newcomers, Trials
from tests.shell.pools import PoolBench
from tests.shell.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def bench(tmp_path: Path) -> PoolBench:
    return PoolBench("/no/such/engine", tmp_path / "m.gguf", tmp_path)


async def test_what_is_given_during_a_trial_joins_it(bench: PoolBench) -> None:
    """All of it is taken back to what was before the first, and nothing goes wrong in between."""
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    before, first, second = (LaunchOptions(ctx_size=size) for size in (1, 2, 3))
    registry = Registry([ModelEntry("a", Source.FILE, "/a")])
    async with bench.pool() as pool:
        trials = Trials(registry, pool)
        registry.set_options("a", before)
        assert trials.options_before("a") == before
        registry.set_options("a", first)
        pool.ask_load("a")
        trials.begin("a", before)
        assert trials.options_before("a") == before, "while the first is on trial"
        registry.set_options("a", second)
        pool.ask_load("a", fresh=True)
        trials.begin("a", trials.options_before("a"))
        await pool.at_rest("a")
        await until(lambda: registry.find("a").options == before, "they are taken back")
    assert wrong == []


async def test_a_newcomer_that_fails_is_forgotten_and_one_that_is_asked_for_again_is_not_yet(bench: PoolBench) -> None:
    bench.unreadable["a"] = ModelFileError("it is broken")
    told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    async with bench.pool() as pool:
        newcomers = Newcomers(pool, lambda model, why: told.put_nowait((model, why)))
        pool.ask_load("a")
        newcomers.begin("a")
        newcomers.begin("a")
        assert await told.get() == ("a", "it is broken")
        assert told.empty()
