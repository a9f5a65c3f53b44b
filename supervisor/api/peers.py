"""Paths of other programs' managers, as those answer them: llama-server's router and llama-swap.

Shapes are those of llama-server's README ("Using multiple models") and of llama-swap's; what they say is ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel

from supervisor.api.described import written
from supervisor.api.feed import EventStream, Feed
from supervisor.api.openai import cards, command_of, router_status
from supervisor.api.services import FeedOf, IdentityOf, LoadsOf, PinningOf, StatusesOf
from supervisor.config.base import Target
from supervisor.core.requests.browsers import from_browser
from supervisor.errors import InvalidRequest, MethodNotAllowed, OriginNotAllowed
from supervisor.proxy.asgi import AS_HEAD
from supervisor.service.loads import Loads
from supervisor.service.resolve import Asked
from supervisor.service.status import ModelStatus
from supervisor.service.statuses import Statuses

router = APIRouter()


def _refuse_looking(request: Request) -> None:
    path = request.scope["path"]
    if from_browser(request.headers):
        raise OriginNotAllowed(
            f"GET {path} changes something, and any page can make a browser send it. "
            "Use POST /api/models/unload, or a program that is no browser."
        )
    if AS_HEAD in request.scope:
        told = f"There is no HEAD {path}: it changes something. Use POST /api/models/unload."
        raise MethodNotAllowed(told, allow="GET")


CHANGES = Depends(_refuse_looking)
"""For every GET that changes something: neither browsers nor HEAD may."""

_SWAP_STATES: Mapping[str, str] = {
    "reserved": "starting",
    "loading": "starting",
    "ready": "ready",
    "draining": "stopping",
    "stopping": "stopping",
}
"""Ours → llama-swap's; any other is `stopped`."""


class ModelName(BaseModel):
    """What the router's calls take; further fields are ignored, as there."""

    model: Target


@router.get("/models")
async def models(statuses: StatusesOf, identity: IdentityOf) -> dict[str, Any]:
    """The router's list of models."""
    return cards(statuses, identity)


@router.post("/models/load")
async def load(body: ModelName, statuses: StatusesOf, loads: LoadsOf) -> dict[str, bool]:
    """Load a known model; answers at once. 400 where it is loaded or loading."""
    status = statuses.of(body.model)
    if router_status(status) != "unloaded":
        raise InvalidRequest("model is already running", param="model")
    await loads.ask(Asked(status.id))
    return {"success": True}


@router.post("/models/unload")
async def unload(body: ModelName, statuses: StatusesOf, loads: LoadsOf) -> dict[str, bool]:
    """Unload a model after its requests; answers at once. 400 where it is not loaded."""
    status = statuses.of(body.model)
    if router_status(status) == "unloaded":
        raise InvalidRequest("model is not running", param="model")
    loads.ask_unload(status.id)
    return {"success": True}


@router.get("/models/sse", response_class=StreamingResponse, **written("text/event-stream"))
async def follow(feed: FeedOf) -> EventStream:
    """The router's events: a model's status whenever it changes; no snapshot."""
    return EventStream(feed, _router_events(feed))


@router.get("/running")
async def running(statuses: StatusesOf, pinning: PinningOf, identity: IdentityOf) -> dict[str, Any]:
    """llama-swap's list of what runs."""
    found = [one for one in statuses.all() if one.state in _SWAP_STATES]
    return {"running": [_running(one, identity.url, pinning.policy(one.id).ttl) for one in found]}


@router.get("/unload", response_class=PlainTextResponse, dependencies=[CHANGES])
async def unload_all(statuses: StatusesOf, loads: LoadsOf) -> str:
    """llama-swap's: unload everything, after the running requests. Not for browsers: any page can have them ask it."""
    await _unload_all(statuses, loads)
    return "OK"


@router.post("/api/models/unload")
async def unload_all_told(statuses: StatusesOf, loads: LoadsOf) -> dict[str, str]:
    """llama-swap's: the same."""
    await _unload_all(statuses, loads)
    return {"msg": "ok"}


@router.post("/api/models/unload/{model:path}", response_class=PlainTextResponse)
async def unload_one(model: Target, loads: LoadsOf) -> str:
    """llama-swap's: unload one model."""
    await loads.unload(model, now=False)
    return "OK"


async def _unload_all(statuses: Statuses, loads: Loads) -> None:
    loaded = [one.id for one in statuses.all() if one.state in _SWAP_STATES]
    await asyncio.gather(*(loads.unload(model, now=False) for model in loaded))


def _running(status: ModelStatus, url: str, ttl: float | None) -> dict[str, Any]:
    return {
        "model": status.id,
        "state": _SWAP_STATES[status.state],
        "cmd": " ".join(command_of(status.pid)),
        "proxy": f"{url}/upstream/{status.id}",
        "ttl": int(ttl or 0),
        "name": "",
        "description": "",
    }


async def _router_events(feed: Feed) -> AsyncIterator[str]:
    before = {model: _told(one) for model, one in feed.now().models.items()}
    async for heard in feed.changes():
        if not heard:
            yield ": keep-alive\n\n"
            continue
        now = {model: _told(one) for model, one in feed.now().models.items()}
        for frame in _differences(before, now):
            yield f"data: {json.dumps(frame)}\n\n"
        before = now


def _told(status: ModelStatus) -> dict[str, Any]:
    shown: dict[str, Any] = {"status": router_status(status)}
    if shown["status"] == "loading" and status.progress is not None:
        stage = status.stage
        shown["progress"] = {"stages": [stage], "current": stage, "value": status.progress}
    if status.state == "failed":
        shown["exit_code"] = 1
    return shown


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The router calls the first word of a load `model_status`, every later one `status_change`."""
    for model, shown in now.items():
        if before.get(model) != shown:
            begins = shown["status"] == "loading" and before.get(model, {}).get("status") != "loading"
            yield {"model": model, "event": "model_status" if begins else "status_change", "data": shown}
    for model in before.keys() - now.keys():
        yield {"model": model, "event": "model_remove"}
