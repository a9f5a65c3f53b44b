"""What others may see of the pool while it works: for probes, for the lease's holder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from supervisor import paths
from supervisor.core.devices import Holding
from supervisor.prepare import make_demo_model
from tests.shell.pools import PoolBench
from tests.shell.waiting import until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path) -> Iterator[PoolBench]:
    bench = PoolBench(str(engine_binary), scripted_model("Hi."), tmp_path)
    yield bench
    bench.log.close()


@pytest.mark.engine
async def test_what_each_process_holds_as_far_as_it_was_planned(bench: PoolBench) -> None:
    async with bench.pool() as pool:
        assert pool.holdings() == ()
        lease = await pool.acquire("a")
        [engine] = bench.alive()
        assert pool.holdings() == (Holding(engine.pid, {"GPU0": 10}),)
        assert lease.number == pool.status("a").view.engines[0].engine
        assert lease.model == "a"
        lease.release()
    assert pool.holdings() == ()


async def test_a_model_that_nobody_waits_for_any_more_is_not_made(tmp_path: Path) -> None:
    """Its maker, which would never end by itself here, is ended, and leaves nothing."""
    places = paths.places({"SUPERVISOR_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    before = len(asyncio.all_tasks())
    making = asyncio.create_task(make_demo_model(places))

    def makers() -> list[psutil.Process]:
        found = psutil.Process().children()
        return [one for one in found if one.status() != psutil.STATUS_ZOMBIE and "supervisor.demo" in one.cmdline()]

    await until(lambda: bool(makers()) and len(asyncio.all_tasks()) > before + 1, "the maker, whose output is read")
    [maker] = makers()
    maker.suspend()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(making, PATIENCE)
    assert not maker.is_running()
    assert list(tmp_path.rglob("*.gguf")) == []
