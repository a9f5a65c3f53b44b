"""Whose a connection is that somebody on the daemon's own host opens to a lent device."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping

import pytest

from supervisor.workers.owner import Ends, Owners, connections_below
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio

CONNECTS = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as found:
    print(found.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def test_only_connections_of_descendants_are_found() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        at: tuple[str, int] = listener.getsockname()
        strangers = [stack.enter_context(socket.create_connection(at, PATIENCE)) for _ in range(32)]
        argv = [sys.executable, "-c", CONNECTS, str(at[1])]
        child = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert child.stdout is not None
        port = int(child.stdout.readline())
        found = {ends: pid for ends, pid in connections_below(os.getpid()).items() if ends[1] == at}
        assert found == {(("127.0.0.1", port), at): child.pid}
        assert not found.keys() & {(one.getsockname(), at) for one in strangers}
        child.communicate()
    assert connections_below(child.pid) == {}


async def test_one_look_serves_all_who_asked_before_it_began() -> None:
    looks, goes_on, begun = 0, threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    ours: Ends = (("127.0.0.1", 2), ("127.0.0.1", 1))

    def look() -> Mapping[Ends, int]:
        nonlocal looks
        looks += 1
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait(PATIENCE)
        return {ours: 7}

    owners = Owners(look)
    first = asyncio.ensure_future(owners.of(ours))
    await begun.wait()
    strangers = [(("127.0.0.1", number + 1000), ours[1]) for number in range(3000)]
    others = [asyncio.ensure_future(owners.of(one)) for one in strangers]
    last = asyncio.ensure_future(owners.of(ours))
    await asyncio.sleep(0)
    goes_on.set()
    assert await first == await last == 7
    assert set(await asyncio.gather(*others)) == {None}
    assert looks == 2
