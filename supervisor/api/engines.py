"""`/api/v1/engines`: which installations of llama-server there are, and which one is used."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from supervisor.api.answers import shaped
from supervisor.api.services import InstalledOf
from supervisor.config.base import Strict, Target
from supervisor.service.engines import EngineList

router = APIRouter(prefix="/api/v1/engines")


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
