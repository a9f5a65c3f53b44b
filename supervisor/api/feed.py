"""What changes, as server-sent events: the state is looked at after every change and told where it differs.

There is no queue: who reads slowly is told the newest state when it reads on, and what came and went between is left
out. So a reader costs what one snapshot takes, however slow it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

from supervisor.api.service import Service

KEEP_ALIVE_S = 15.0
_PAUSE_S = 0.05  # between two looks, so that heavy traffic does not cost a look for every request
_VOLATILE = frozenset({"rss_bytes"})  # changes by itself, and is no event

Shown = Mapping[Any, dict[str, Any]]


async def events(service: Service, keep_alive: float = KEEP_ALIVE_S) -> AsyncGenerator[str]:
    """`snapshot` with `models` and `requests`; then `model`, `model_removed`, `request` and `request_done`.

    A comment after every `keep_alive` seconds of silence. Ends when the daemon does.
    """
    models, requests = _models(service), _requests(service)
    yield event("snapshot", {"models": service.models(), "requests": list(requests.values())})
    async for heard in changes(service, keep_alive):
        now, running = _models(service), _requests(service)
        told = [*_differences("model", models, now), *_differences("request", requests, running)]
        models, requests = now, running
        if told or not heard:
            yield "".join(told) or ": keep-alive\n\n"


async def changes(service: Service, keep_alive: float) -> AsyncIterator[bool]:
    """True after changes, never more often than every `_PAUSE_S`; False after `keep_alive` seconds without one."""
    with service.pool.watch() as changed, service.inflight.watch(changed):
        closing = asyncio.ensure_future(service.closing.wait())
        try:
            while not closing.done():
                waiting = asyncio.ensure_future(changed.wait())
                await asyncio.wait({waiting, closing}, timeout=keep_alive, return_when=asyncio.FIRST_COMPLETED)
                heard = waiting.done()
                waiting.cancel()
                changed.clear()
                yield heard
                await asyncio.sleep(_PAUSE_S)
        finally:
            closing.cancel()


def event(name: str, data: Mapping[str, Any]) -> str:
    """One event as text."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _models(service: Service) -> dict[str, dict[str, Any]]:
    return {status["id"]: status for status in service.models()}


def _requests(service: Service) -> dict[int, dict[str, Any]]:
    return {request["id"]: request for request in service.requests()}


def _differences(name: str, before: Shown, now: Shown) -> Iterator[str]:
    for key, shown in now.items():
        if key not in before or _lasting(before[key]) != _lasting(shown):
            yield event(name, shown)
    for key in before.keys() - now.keys():
        yield event("model_removed" if name == "model" else "request_done", {"id": key})


def _lasting(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if name not in _VOLATILE}
