"""`/api/v1/engines`: which installations of llama-server there are, which one is used, and how another one is made."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse

from supervisor.api.described import shaped
from supervisor.api.errors import envelope
from supervisor.api.leaving import while_there
from supervisor.api.services import InstalledOf
from supervisor.config.base import Strict, Target
from supervisor.errors import SupervisorError
from supervisor.llamacpp.install import InstallRequest
from supervisor.service.engines import EngineList, Installed

router = APIRouter(prefix="/api/v1/engines")


_ROUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "auto": ("release", "registry", "git"),
    "release": ("release",),
    "source": ("registry", "git"),
}


class MakeRequest(Strict):
    """What to install: for which back end, and whether as the official build or compiled here.

    Both have to be said: a call without words begins nothing that takes minutes.
    """

    backend: Literal["auto", "cpu", "cuda", "hip", "vulkan", "metal"]
    route: Literal["auto", "release", "source"]


class UseRequest(Strict):
    """Which one: a name of the list."""

    name: Target


@router.get("", **shaped(EngineList))
async def engines(installed: InstalledOf) -> dict[str, Any]:
    """The installations of llama-server, the newest build first."""
    return await installed.all()


@router.post("/use", **shaped(EngineList))
async def use(body: UseRequest, installed: InstalledOf) -> dict[str, Any]:
    """Use another one for the next loads; models that are loaded stay with theirs."""
    return await installed.choose(body.name)


@router.post("", **shaped(EngineList, streamed=True))
async def make(body: MakeRequest, request: Request, installed: InstalledOf) -> JSONResponse | StreamingResponse:
    """Install another one beside the others; who leaves ends it. `Accept: text/event-stream`: told as it goes."""
    wanted = InstallRequest(_ROUTES[body.route], body.backend, use=False)
    if "text/event-stream" in request.headers.get("accept", ""):
        return StreamingResponse(_told(installed, wanted), media_type="text/event-stream")
    return JSONResponse(await while_there(request, _made(installed, wanted)))


async def _made(installed: Installed, wanted: InstallRequest) -> dict[str, Any]:
    async for _ in installed.made(wanted):
        pass
    return await installed.all()


async def _told(installed: Installed, wanted: InstallRequest) -> AsyncIterator[str]:
    try:
        async for step in installed.made(wanted):
            yield _event({"state": "installing", **asdict(step)})
        yield _event({"state": "done", **await installed.all()})
    except SupervisorError as error:
        yield _event({"state": "failed", **envelope(error)})


def _event(told: dict[str, Any]) -> str:
    return f"data: {json.dumps(told)}\n\n"
