"""When the stream of events looks, and what it says while nothing happens; on a real pool without engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from supervisor.api.feed import events
from supervisor.api.service import Service
from supervisor.core.models.registry import ModelEntry
from supervisor.core.schedule import ModelPolicy, Pins
from supervisor.engines.log import OutputLog
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.service.launcher import EngineMaker
from supervisor.service.looks import Looks
from tests.shell.pools import PoolBench


class _Registry:
    """No models; `looks`: how often they were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[ModelEntry]:
        self.looks += 1
        return iter(())


def service_of(pool: Pool, registry: _Registry | None = None) -> Service:
    maker = cast(EngineMaker, SimpleNamespace(registry=registry or _Registry()))
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


def test_what_many_readers_are_told_is_looked_at_once(tmp_path: Path) -> None:
    """Otherwise idle connections would make every change cost the loop, and all streams on it, what they ask for."""
    registry = _Registry()

    async def go() -> set[str]:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            service = service_of(pool, registry)
            readers = [events(service) for _ in range(200)]
            for reader in readers:
                await anext(reader)
            telling = [asyncio.ensure_future(anext(reader)) for reader in readers]
            await asyncio.sleep(0)  # all of them listen
            service.inflight.enter("m", "/v1/completions", stream=False)
            told = set(await asyncio.gather(*telling))
            for reader in readers:
                await reader.aclose()
            return told

    assert len(asyncio.run(go())) == 1
    assert registry.looks < 20


def test_a_look_is_new_after_every_change_and_after_a_while() -> None:
    changed, now, there = asyncio.Event(), [0.0], [{"id": "a", "state": "loading", "rss_bytes": 1}]
    looks = Looks(lambda: [dict(one) for one in there], list, changed, lambda: now[0])
    first = looks.now()
    assert looks.now() is first
    there[0]["rss_bytes"] = 2
    changed.set()
    second = looks.now()
    assert second is not first
    assert second.models["a"]["rss_bytes"] == 2
    assert second.since(first) == ""
    there[0]["state"] = "ready"
    assert looks.now() is second
    now[0] += 2
    assert looks.now().since(first) == looks.now().since(second)
    assert '"state": "ready"' in looks.now().since(second)
