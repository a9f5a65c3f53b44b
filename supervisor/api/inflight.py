"""`/api/v1/requests` and `/api/v1/events`: what is going on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from supervisor.api.feed import EventStream, events
from supervisor.api.service import ServiceOf

router = APIRouter(prefix="/api/v1")

Number = Annotated[int, Path(ge=0, le=1 << 63)]


@router.get("/requests")
async def requests(service: ServiceOf) -> dict[str, object]:
    """The requests in flight, the oldest first."""
    return {"requests": service.requests()}


@router.delete("/requests/{number}")
async def cancel(number: Number, service: ServiceOf) -> dict[str, object]:
    """End a request: its client gets the error `request_cancelled`, its engine's slot is freed."""
    return service.request(service.inflight.cancel(number))


@router.get("/events", response_model=None)
async def follow(service: ServiceOf) -> EventStream:
    """A snapshot, then what changes in models and requests."""
    return EventStream(service, events(service))
