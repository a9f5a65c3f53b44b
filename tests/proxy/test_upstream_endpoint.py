"""Looking at an engine through /upstream/ while it ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest

from supervisor.api.app import Proxied, _Dispatch
from supervisor.api.errors import render_error
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.engines.client import EngineClient
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool
from supervisor.proxy.asked import asked_endpoint
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.naming import Naming
from supervisor.proxy.relay import Relaying
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting
from tests.proxy.asking import answer_of


class _Pool:
    """A pool with one engine that takes no connection any more; `told`: it is told to end once it has been found."""

    def __init__(self, client: EngineClient, *, told: bool) -> None:
        self._clients: list[EngineClient | None] = [client, None if told else client]

    def is_coming(self, model: str) -> bool:
        return False

    def ready_client(self, model: str) -> EngineClient | None:
        return self._clients.pop(0)


@pytest.mark.parametrize(("told", "status"), [(True, 503), (False, 502)])
def test_looking_at_an_engine_that_is_just_told_to_end_is_looking_at_none(
    tmp_path: Path, told: bool, status: int
) -> None:
    assert _looked_at("/upstream/m/slots", tmp_path, told=told) == status


def test_the_id_in_a_path_may_have_slashes_as_they_are_or_encoded(tmp_path: Path) -> None:
    assert _looked_at("/upstream/owner/repo/slots", tmp_path, told=True) == 503
    assert _looked_at("/upstream/owner%2Frepo/slots", tmp_path, told=True) == 503
    assert _looked_at("/upstream/owner/slots", tmp_path, told=True) == 404


@pytest.mark.parametrize("piece", ["/", "a/", "%2f/", "m%00/"])
def test_a_path_of_many_pieces_is_looked_through_no_further_than_ids_reach(piece: str, tmp_path: Path) -> None:
    begun = time.process_time()
    assert _looked_at("/upstream/x" + piece * (60_000 // len(piece)), tmp_path, told=True) == 404
    assert time.process_time() - begun < 2  # every cut of the path, each with a search for the nearest name: a minute


def test_head_never_wakes_a_model(tmp_path: Path) -> None:
    """A GET of the same path would: here it meets a pool that lends nothing."""
    assert _looked_at("/upstream/m/anything", tmp_path, told=True, method="HEAD") == 503
    with pytest.raises(AttributeError, match="acquire"):
        _looked_at("/upstream/m/anything", tmp_path, told=True)


@pytest.mark.parametrize("path", ["/props", "/slots/", "/lora-adapters", "/lora-adapters//"])
def test_a_page_that_has_a_path_with_a_query_shown_wakes_nothing(path: str, tmp_path: Path) -> None:
    """The pool lends nothing here: asking it for an engine is an error."""
    relaying = _relaying(cast(Pool, _Pool(EngineClient(str(tmp_path / "gone.sock")), told=True)))
    asked = asked_endpoint(relaying, upstream_endpoint(relaying, lambda: 0))
    endpoint = _Dispatch(cast(Any, None), Proxied({}, asked, cast(Any, None)))
    where = {"path": path, "raw_path": path.encode(), "query_string": b"model=m"}
    scope = {"type": "http", "method": "GET", **where, "headers": [(b"user-agent", b"Mozilla/5.0")]}
    assert asyncio.run(answer_of(endpoint, scope))[0]["status"] == 503


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("/%73lots", "/slots"),
        ("/%u0073lots/0", "/%25u0073lots/0"),  # engines would read that as /slots/0
        ("/a%2Fb%3Fc;d=%C3%A9%20%0d%0A", "/a/b%3Fc;d=%C3%A9%20%0D%0A"),
        ("/100%/%zz", "/100%25/%25zz"),
        ("", "/"),
    ],
)
def test_the_engine_is_asked_for_the_path_that_was_judged(written: str, asked: str, tmp_path: Path) -> None:
    assert asyncio.run(_asked_for("/upstream/m" + written, tmp_path / "engine.sock")) == asked


async def _asked_for(path: str, socket: Path) -> str:
    """What the engine is asked for where a browser asks for a path."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, socket):
        pool = cast(Pool, _Pool(EngineClient(str(socket)), told=False))
        relaying = _relaying(pool)
        scope = {"method": "GET", "path": unquote(path), "raw_path": path.encode(), "query_string": b""}
        await answer_of(upstream_endpoint(relaying, lambda: 0), {**scope, "headers": [(b"user-agent", b"Mozilla/5.0")]})
    return heads[0].split(b" ")[1].decode()


def _relaying(pool: Pool) -> Relaying:
    inflight = Inflight(lambda: 0.0)
    registry = Registry(ModelEntry(name, Source.FILE, f"/{name}.gguf") for name in ("m", "owner/repo"))
    waiting = Waiting(pool, inflight, lambda: 0.0)
    naming = Naming(registry, frozenset, lambda: None)
    return Relaying(pool, registry, inflight, Bodies(1 << 20, 1 << 20), render_error, ToolCalls(), waiting, naming)


def _looked_at(path: str, folder: Path, *, told: bool, method: str = "GET") -> int:
    """The status of the answer."""
    pool = cast(Pool, _Pool(EngineClient(str(folder / "gone.sock")), told=told))
    endpoint = _Dispatch(cast(Any, None), Proxied({}, cast(Any, None), upstream_endpoint(_relaying(pool), lambda: 0)))
    where = {"path": unquote(path), "raw_path": path.encode(), "query_string": b"", "headers": []}
    scope = {"type": "http", "method": method, **where}
    status: int = asyncio.run(answer_of(endpoint, scope))[0]["status"]
    return status
