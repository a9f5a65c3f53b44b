"""Model files over REST: `/api/v1/disk`, downloads and removal; `/models` as llama-server's router mode has them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from supervisor.api.answers import DiskList, Pulled, Removed, VerifiedList
from supervisor.api.described import shaped
from supervisor.api.errors import envelope
from supervisor.api.leaving import while_there
from supervisor.api.services import DiskOf, LoadsOf, PullsOf
from supervisor.config.base import Strict, Target
from supervisor.errors import SupervisorError
from supervisor.hub.models import Chosen
from supervisor.service.pulls import Pulls

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


@router.get("/api/v1/disk", **shaped(DiskList))
async def disk(disk: DiskOf) -> dict[str, Any]:
    """Every model on disk: in the hub's cache, and what LM Studio and Ollama keep."""
    return {"models": await disk.models()}


@router.post("/api/v1/models", **shaped(Pulled, streamed=True))
async def pull(body: PullRequest, request: Request, pulls: PullsOf) -> JSONResponse | StreamingResponse:
    """Download without loading; who leaves calls it off. With `Accept: text/event-stream` the progress is streamed."""
    if "text/event-stream" in request.headers.get("accept", ""):
        told, chosen = await while_there(request, pulls.find(body.model, update=body.update))
        return StreamingResponse(_progress(pulls, told, chosen), media_type="text/event-stream")
    return JSONResponse(await while_there(request, _pulled(pulls, body)))


@router.delete("/api/v1/models", **shaped(Removed))
async def remove(model: Target, disk: DiskOf) -> dict[str, Any]:
    """Remove a model's files from the hub's cache; a download of it ends. Refused while it is loaded."""
    return await disk.remove(model)


@router.post("/api/v1/models/verify", **shaped(VerifiedList))
async def verify(body: VerifyRequest, request: Request, disk: DiskOf) -> dict[str, Any]:
    """Check sizes, hashes and headers of what is on disk; reads all of it, or until the client leaves."""
    return {"models": await while_there(request, disk.verify(body.model))}


@router.post("/models")
async def router_pull(body: RouterPullRequest, pulls: PullsOf) -> dict[str, bool]:
    """Begin a download that goes on whoever leaves, as in the router; what cannot be found is refused before."""
    _, chosen = await pulls.find(body.model, update=False)
    pulls.begin(chosen)
    return {"success": True}


@router.delete("/models")
async def router_remove(model: Target, disk: DiskOf, loads: LoadsOf) -> dict[str, bool]:
    """The same as on `/api/v1/models`; a loaded model is unloaded first, as the router does."""
    with suppress(SupervisorError):
        await loads.unload(model, now=True)
    await disk.remove(model)
    return {"success": True}


async def _pulled(pulls: Pulls, body: PullRequest) -> dict[str, Any]:
    told, chosen = await pulls.find(body.model, update=body.update)
    return {**told, **await pulls.fetch(chosen)}


async def _progress(pulls: Pulls, told: dict[str, Any], chosen: Chosen) -> AsyncIterator[str]:
    try:
        async for line in pulls.follow(chosen):
            yield f"data: {json.dumps({**told, **line})}\n\n"
    except SupervisorError as error:
        yield f"data: {json.dumps({**told, 'state': 'failed', **envelope(error)})}\n\n"
