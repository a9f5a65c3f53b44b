"""What others may see of the pool while it works: for probes, for the lease's holder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.devices import Holding
from tests.shell.pools import PoolBench
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
