"""When the stream of events looks, and what it says while nothing happens; on a real pool without engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.api.feed import Feed
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.service.looks import Looks
from supervisor.service.requests import Requests
from supervisor.service.status import ModelStatus
from tests.shell.pools import PoolBench
from tests.support.statuses import status_of


@dataclass
class Bench:
    """A feed of no models. `looks`: how often they were looked at."""

    feed: Feed
    inflight: Inflight
    looks: int = 0


@contextmanager
def bench_of(pool: Pool) -> Iterator[Bench]:
    inflight = Inflight(lambda: 0.0)

    def models() -> list[ModelStatus]:
        bench.looks += 1
        return []

    with pool.watch() as changed, inflight.watch(changed):
        bench = Bench(Feed(pool, inflight, Looks(models, Requests(inflight, float).all, changed)), inflight)
        yield bench


def test_silence_is_broken_by_a_comment_and_a_request_by_its_events(tmp_path: Path) -> None:
    async def go() -> list[str]:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            with bench_of(pool) as bench:
                heard = bench.feed.events(keep_alive=0.02)
                found = [await anext(heard), await anext(heard)]
                request = bench.inflight.enter("m", "/v1/completions", stream=False)
                found.append(await anext(heard))
                bench.inflight.leave(request)
                found.append(await anext(heard))
                bench.feed.close()
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
            with bench_of(pool) as bench:
                heard = bench.feed.events(keep_alive=5.0)
                await anext(heard)
                for _ in range(1000):
                    bench.inflight.leave(bench.inflight.enter("m", "/v1/completions", stream=False))
                last = bench.inflight.enter("m", "/v1/completions", stream=True)
                told = await anext(heard)
                bench.inflight.leave(last)
                await heard.aclose()
                return told

    told = asyncio.run(go())
    assert told.count("event:") == 1
    assert '"id": 1001' in told


def test_what_many_readers_are_told_is_looked_at_once(tmp_path: Path) -> None:
    """Otherwise idle connections would make every change cost the loop, and all streams on it, what they ask for."""

    async def go() -> tuple[set[str], int]:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            with bench_of(pool) as bench:
                readers = [bench.feed.events() for _ in range(200)]
                for reader in readers:
                    await anext(reader)
                telling = [asyncio.ensure_future(anext(reader)) for reader in readers]
                await asyncio.sleep(0)  # all of them listen
                bench.inflight.enter("m", "/v1/completions", stream=False)
                told = set(await asyncio.gather(*telling))
                for reader in readers:
                    await reader.aclose()
                return told, bench.looks

    told, looks = asyncio.run(go())
    assert len(told) == 1
    assert looks < 20


def test_a_look_is_new_after_every_change_and_after_a_while() -> None:
    changed, now, there = asyncio.Event(), [0.0], [status_of("a", state="loading", rss_bytes=1)]
    looks = Looks(lambda: list(there), list, changed, lambda: now[0])
    first = looks.now()
    assert looks.now() is first
    there[0] = replace(there[0], rss_bytes=2)
    changed.set()
    second = looks.now()
    assert second is not first
    assert second.models["a"].rss_bytes == 2
    assert second.since(first) == ""
    there[0] = replace(there[0], state="ready")
    assert looks.now() is second
    now[0] += 2
    assert looks.now().since(first) == looks.now().since(second)
    assert '"state": "ready"' in looks.now().since(second)


def test_a_reader_that_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    async def go() -> set[asyncio.Task[object]]:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            with bench_of(pool) as bench:
                heard = bench.feed.events()
                await anext(heard)
                before = asyncio.all_tasks()
                reading = asyncio.ensure_future(anext(heard))
                for _ in range(3):  # until it waits
                    await asyncio.sleep(0)
                reading.cancel()
                await asyncio.wait({reading})
                await asyncio.sleep(0)
                return asyncio.all_tasks() - before

    assert asyncio.run(go()) == set()
