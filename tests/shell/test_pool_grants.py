"""What the pool grants comes back whatever is raised: leases, and the room of engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from supervisor.core.schedule.events import EngineId, Failure, ModelId, Plan
from supervisor.engines.client import EngineClient
from supervisor.engines.llama.manner import Attendants
from supervisor.engines.llama.slots import SlotKeeper
from supervisor.errors import ModelLoadFailed
from supervisor.pool.lease import Lease
from supervisor.pool.pool import Pool
from tests.fakes import install_fake
from tests.shell.pools import PoolBench
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio


class Uncommon(BaseException):
    """What no `except Exception` catches."""


class Unkept:
    """Cannot save slots."""

    async def restore(self, client: EngineClient, slots: int) -> None:
        pass

    async def save(self, client: EngineClient) -> None:
        raise LookupError("a bug")


class Disturbed(PoolBench):
    """A bench whose edges raise where they are told to: `observe`, `again`, `park`."""

    def __init__(self, binary: str, folder: Path, *broken: str) -> None:
        super().__init__(binary, folder / "none.gguf", folder)
        self.broken = broken

    def _observe(self, event: str, model: ModelId, engine: EngineId, failure: Failure | None) -> None:
        super()._observe(event, model, engine, failure)
        if "observe" in self.broken:
            raise OSError("No space left on device")

    def _attendants(self, keeper: SlotKeeper | None) -> Attendants:
        return Attendants(keeper=Unkept()) if "park" in self.broken else super()._attendants(keeper)

    def _again(self, model: ModelId, plan: Plan, failure: Failure) -> bool:
        if "again" in self.broken:
            raise LookupError("a bug")
        return super()._again(model, plan, failure)


def bench_of(folder: Path, *broken: str, knobs: tuple[str, ...] = ()) -> Disturbed:
    return Disturbed(install_fake(folder, *knobs), folder, *broken)


async def granted_in_full(pool: Pool, model: str, slots: int = 2) -> None:
    """As many leases as the engine has slots are granted at once."""
    async with asyncio.timeout(PATIENCE):
        for lease in await asyncio.gather(*(pool.acquire(model) for _ in range(slots))):
            lease.release()


@pytest.mark.parametrize("error", [OSError("broken pipe"), KeyError("x"), Uncommon(), asyncio.CancelledError()])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_lease_comes_back_whatever_is_raised_while_it_is_waited_for(
    tmp_path: Path, moment: str, error: BaseException
) -> None:
    async def wait(lease: asyncio.Future[Lease]) -> Lease:
        if moment == "after":
            await asyncio.wait({lease})
        raise error

    bench = bench_of(tmp_path)
    async with bench.pool() as pool:
        for outcome in await asyncio.gather(*(pool.acquire("a", wait=wait) for _ in range(2)), return_exceptions=True):
            assert isinstance(outcome, type(error))
        view = pool.status("a").view
        assert (view.leases, view.waiting) == (0, 0)
        await granted_in_full(pool, "a")
    bench.log.close()


async def test_a_refusal_is_told_once_and_leaves_nothing(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, knobs=("--exit-before-ready",))
    async with bench.pool() as pool:

        async def wait(lease: asyncio.Future[Lease]) -> Lease:
            await asyncio.wait({lease})
            return lease.result()

        with pytest.raises(ModelLoadFailed):
            await pool.acquire("a", wait=wait)
        view = pool.status("a").view
        assert (view.leases, view.waiting) == (0, 0)
    bench.log.close()


async def test_a_log_that_cannot_be_written_keeps_no_engine_from_ending(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "observe")
    async with bench.pool() as pool:
        (await pool.acquire("a")).release()
        async with asyncio.timeout(PATIENCE):
            (await pool.acquire("b")).release()  # there is room for one: `a` has been told to end
            await pool.unload("b")
        assert bench.alive() == []
    assert [event for event, *_ in bench.seen if event == "engine_gone"] == ["engine_gone"] * 2
    bench.log.close()


async def test_a_failed_load_gives_its_room_back_though_nobody_can_say_what_to_try_next(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "again", knobs=("--exit-before-ready", "--exit-code", "1"))
    async with bench.pool() as pool:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ModelLoadFailed):
                await pool.acquire("a")
        bench.binary = install_fake(tmp_path)
        await granted_in_full(pool, "b")
    assert ("again_failed", "a", "internal_error") in bench.seen
    bench.log.close()


async def test_an_engine_whose_slots_cannot_be_saved_ends_all_the_same(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "park")
    async with bench.pool() as pool:
        (await pool.acquire("a")).release()
        async with asyncio.timeout(PATIENCE):
            (await pool.acquire("b")).release()
        assert [one.pid for one in bench.alive()] == [bench.engines[1].pid]
    bench.log.close()
