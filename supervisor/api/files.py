"""Model files over REST: `/api/v1/disk`, downloads and removal; `/models` as llama-server's router mode has them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from supervisor.api.errors import envelope
from supervisor.api.leaving import while_there
from supervisor.api.service import Service, ServiceOf
from supervisor.config.base import Strict, Target
from supervisor.errors import SupervisorError
from supervisor.hub.models import Chosen

router = APIRouter()


class PullRequest(Strict):
    """What to download: a model of the hub. `update`: ask for the newest commit, whatever is on disk."""

    model: Target
    update: bool = False


class RouterPullRequest(BaseModel):
    """What llama-server's router mode is told."""

    model: Target


class VerifyRequest(Strict):
    """What to check; null: everything on disk."""

    model: Target | None = None


@router.get("/api/v1/disk")
async def disk(service: ServiceOf) -> dict[str, Any]:
    """Every model on disk: in the hub's cache, and what LM Studio and Ollama keep."""
    return {"models": await service.disk.models()}


@router.post("/api/v1/models", response_model=None)
async def pull(body: PullRequest, request: Request, service: ServiceOf) -> JSONResponse | StreamingResponse:
    """Download without loading; who leaves calls it off. With `Accept: text/event-stream` the progress is streamed."""
    if "text/event-stream" in request.headers.get("accept", ""):
        told, chosen = await service.disk.pulls.find(body.model, update=body.update)
        return StreamingResponse(_progress(service, told, chosen), media_type="text/event-stream")
    return JSONResponse(await while_there(request, _pulled(service, body)))


@router.delete("/api/v1/models")
async def remove(model: Target, service: ServiceOf) -> dict[str, Any]:
    """Remove a model's files from the hub's cache; a download of it ends. Refused while it is loaded."""
    return await service.disk.remove(model)


@router.post("/api/v1/models/verify")
async def verify(body: VerifyRequest, request: Request, service: ServiceOf) -> dict[str, Any]:
    """Check sizes, hashes and headers of what is on disk; reads all of it, or until the client leaves."""
    return {"models": await while_there(request, service.disk.verify(body.model))}


@router.post("/models")
async def router_pull(body: RouterPullRequest, service: ServiceOf) -> dict[str, bool]:
    """Begin a download that goes on whoever leaves, as in the router; what cannot be found is refused before."""
    _, chosen = await service.disk.pulls.find(body.model, update=False)
    service.disk.pulls.begin(chosen)
    return {"success": True}


@router.delete("/models")
async def router_remove(model: Target, service: ServiceOf) -> dict[str, bool]:
    """The same as on `/api/v1/models`; a loaded model is unloaded first, as the router does."""
    with suppress(SupervisorError):
        await service.unload(model, now=True)
    await service.disk.remove(model)
    return {"success": True}


async def _pulled(service: Service, body: PullRequest) -> dict[str, Any]:
    told, chosen = await service.disk.pulls.find(body.model, update=body.update)
    return {**told, **await service.disk.pulls.fetch(chosen)}


async def _progress(service: Service, told: dict[str, Any], chosen: Chosen) -> AsyncIterator[str]:
    try:
        async for line in service.disk.pulls.follow(chosen):
            yield f"data: {json.dumps({**told, **line})}\n\n"
    except SupervisorError as error:
        yield f"data: {json.dumps({**told, 'state': 'failed', **envelope(error)})}\n\n"
