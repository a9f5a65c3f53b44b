"""Plans that clients ask for are computed beside the loop, one after the other, and not endlessly many wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from supervisor.core.devices import Machine
from supervisor.errors import QueueFull
from supervisor.planning.lookout import MOST_WAITING, Lookout, Rules
from supervisor.pool.living import NOBODY
from supervisor.probe.profiles import load_profile
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio


def machine(again: bool, ours: object) -> Machine:
    return load_profile("1x8gb")


def lookout() -> Lookout:
    return Lookout(machine, Rules)


async def test_the_loop_goes_on_while_a_plan_is_computed() -> None:
    loop_went_on = threading.Event()
    asyncio.get_running_loop().call_soon(loop_went_on.set)
    assert await lookout().aside(lambda: loop_went_on.wait(PATIENCE))


async def test_one_plan_is_computed_at_a_time() -> None:
    some, running, most = lookout(), 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.001)
        running -= 1

    await asyncio.gather(*(some.aside(work) for _ in range(20)))
    assert most == 1


async def test_more_than_so_many_do_not_wait() -> None:
    some, go = lookout(), threading.Event()
    waiting = [asyncio.ensure_future(some.aside(lambda: go.wait(PATIENCE))) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull) as caught:
        await some.aside(lambda: None)
    assert caught.value.retry_after >= 1
    go.set()
    assert all(await asyncio.gather(*waiting))
    await some.aside(lambda: None)


async def test_what_was_seen_does_not_change_under_a_plan() -> None:
    some = lookout()
    sight = await some.look(NOBODY)
    await some.look(NOBODY, again=True)
    assert some.sight is not sight
    assert sight.budgets == some.sight.budgets


async def test_one_look_serves_all_who_asked_before_it() -> None:
    """Probes take turns: who asks for the devices again and again must not hold up those who load."""
    looks: list[bool] = []
    goes_on = threading.Event()

    def slow(again: bool, ours: object) -> Machine:
        looks.append(again)
        assert goes_on.wait(PATIENCE)
        return machine(again, ours)

    one = Lookout(slow, Rules)
    tasks = [asyncio.ensure_future(one.look(NOBODY, again=again)) for again in (True, False) * 50]
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(*tasks)
    assert sorted(looks) == [False, False, True, True]
