"""Looking at an engine through /upstream/ while it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from supervisor.api.errors import render_error
from supervisor.core.registry import ModelEntry, Registry, Source
from supervisor.engine_client import EngineClient
from supervisor.inflight import Inflight
from supervisor.pool import Pool
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.relay import Relaying
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting
from tests.proxy.asking import answer_of


class _Pool:
    """A pool with one engine that takes no connection any more; `told`: it is told to end once it has been found."""

    def __init__(self, client: EngineClient, *, told: bool) -> None:
        self._clients: list[EngineClient | None] = [client, None if told else client]

    def ready_client(self, model: str) -> EngineClient | None:
        return self._clients.pop(0)


@pytest.mark.parametrize(("told", "status"), [(True, 503), (False, 502)])
def test_looking_at_an_engine_that_is_just_told_to_end_is_looking_at_none(
    tmp_path: Path, told: bool, status: int
) -> None:
    pool = cast(Pool, _Pool(EngineClient(str(tmp_path / "gone.sock")), told=told))
    inflight = Inflight(lambda: 0.0)
    registry = Registry((ModelEntry("m", Source.FILE, "/m.gguf"),))
    waiting = Waiting(pool, inflight, lambda: 0.0)
    relaying = Relaying(pool, registry, inflight, Bodies(1 << 20, 1 << 20), render_error, ToolCalls(), waiting)
    endpoint = upstream_endpoint(relaying, lambda: 0)
    scope = {
        "method": "GET",
        "path": "/upstream/m/slots",
        "raw_path": b"/upstream/m/slots",
        "query_string": b"",
        "headers": [],
    }
    sent = asyncio.run(answer_of(endpoint, scope))
    assert sent[0]["status"] == status
