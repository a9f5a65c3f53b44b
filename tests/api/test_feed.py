"""When the stream of events looks, and what it says while nothing happens; on a real pool without engines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from supervisor.api.feed import events
from supervisor.api.service import Service
from supervisor.core.schedule import ModelPolicy, Pins
from supervisor.engine_log import OutputLog
from supervisor.inflight import Inflight
from supervisor.pool import Pool
from supervisor.prepare import EngineMaker
from supervisor.proxy.toolcalls import ToolCalls
from tests.shell.pools import PoolBench


def service_of(pool: Pool) -> Service:
    maker = cast(EngineMaker, SimpleNamespace(registry=()))
    inflight, pins = Inflight(lambda: 0.0), Pins(lambda model: ModelPolicy())
    unused = cast(Any, None)
    return Service(
        *(pool, maker, unused, unused, OutputLog(None), "", "", 0.0, float, lambda: None),
        *(inflight, pins, ToolCalls(), lambda: False),
    )


def test_silence_is_broken_by_a_comment_and_a_request_by_its_events(tmp_path: Path) -> None:
    async def go() -> list[str]:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            service = service_of(pool)
            heard = events(service, keep_alive=0.02)
            found = [await anext(heard), await anext(heard)]
            request = service.inflight.enter("m", "/v1/completions", stream=False)
            found.append(await anext(heard))
            service.inflight.leave(request)
            found.append(await anext(heard))
            service.closing.set()
            return found + [last async for last in heard if not last.startswith(":")]

    snapshot, silence, came, gone = asyncio.run(go())
    assert snapshot == 'event: snapshot\ndata: {"models": [], "requests": []}\n\n'
    assert silence == ": keep-alive\n\n"
    assert came.startswith('event: request\ndata: {"id": 1, "model": "m", "engine": null')
    assert gone == 'event: request_done\ndata: {"id": 1}\n\n'


def test_many_changes_between_two_looks_are_one(tmp_path: Path) -> None:
    """A thousand requests that come and go while nobody reads leave nothing behind."""

    async def go() -> str:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            service = service_of(pool)
            heard = events(service, keep_alive=5.0)
            await anext(heard)
            for _ in range(1000):
                service.inflight.leave(service.inflight.enter("m", "/v1/completions", stream=False))
            last = service.inflight.enter("m", "/v1/completions", stream=True)
            told = await anext(heard)
            service.inflight.leave(last)
            await heard.aclose()
            return told

    told = asyncio.run(go())
    assert told.count("event:") == 1
    assert '"id": 1001' in told
