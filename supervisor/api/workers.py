"""`/api/v1/workers`: other hosts whose devices count as ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from supervisor.api.described import shaped
from supervisor.api.services import WorkersOf
from supervisor.config.base import Strict
from supervisor.service.workers import WorkerStatus

router = APIRouter(prefix="/api/v1/workers")

Named = Annotated[str, Path(max_length=64)]


class NewInvitation(Strict):
    """What an invitation is to say.

    `host`: by which name or address the other host reaches this one; null: where workers are listened for, or this
    host's name. `seconds`: how long it is of use.
    """

    host: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9.:_-]+$")] | None = None
    seconds: Annotated[float, Field(ge=1, le=30 * 86400)] = 3600


@dataclass(frozen=True)
class WorkerList:
    """All workers. listen: where they are let in; null: nowhere. unable: why nobody is let in there."""

    listen: str | None
    unable: str | None
    workers: Sequence[WorkerStatus]


@dataclass(frozen=True)
class Invitation:
    """An invitation. token: for `supervisor worker join`, told this once. expires_at: seconds since 1970."""

    token: str
    expires_at: float


@dataclass(frozen=True)
class WorkerRemoved:
    """A worker that is let in no more."""

    name: str


@router.get("", **shaped(WorkerList))
async def workers(workers: WorkersOf) -> dict[str, Any]:
    """All hosts that have joined as workers: whether they are there, and what their devices have free."""
    found = [one.to_json() for one in await workers.all()]
    return {"listen": workers.listen, "unable": workers.unable, "workers": found}


@router.post("/invitations", **shaped(Invitation))
async def invite(body: NewInvitation, workers: WorkersOf, response: Response) -> dict[str, Any]:
    """Invite another host to be a worker. The token is of use once, and lets in whoever has it."""
    made = await workers.invite(body.host, body.seconds)
    response.headers["cache-control"] = "no-store"
    return {"token": made.token, "expires_at": made.expires_at}


@router.delete("/{name}", **shaped(WorkerRemoved))
async def remove(name: Named, workers: WorkersOf) -> dict[str, Any]:
    """Let a worker in no more, and end what engines do on it."""
    await workers.remove(name)
    return {"name": name}
