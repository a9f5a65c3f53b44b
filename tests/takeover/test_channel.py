"""The connection between a daemon and the copy of the one before."""

from __future__ import annotations

import asyncio
import sys

import pytest

from supervisor.core.takeover.messages import Alive, Gone, ToCopy
from supervisor.daemon.takeover.channel import Channel, pair
from tests.support.patience import PATIENCE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can a daemon be taken over while it runs"),
]


@pytest.mark.parametrize("speaks", [False, True])
async def test_what_was_said_before_the_end_is_heard_although_the_other_side_has_not_listened(speaks: bool) -> None:
    mine, theirs = pair()
    ours: Channel[ToCopy] = Channel(mine, ToCopy)  # type: ignore[arg-type]  # a union
    other: Channel[Alive] = Channel(theirs, Alive)
    heard, over = list[object](), asyncio.Event()
    ours.send(Alive())
    other.send(Gone(7, told=True, failure=None, how=(0, None)))
    other.close()
    if speaks:
        ours.send(Alive())
    ours.start(lambda message, _: heard.append(message), over.set)
    async with asyncio.timeout(PATIENCE):
        await over.wait()
    ours.leave()
    assert heard == [Gone(7, told=True, failure=None, how=(0, None))]
