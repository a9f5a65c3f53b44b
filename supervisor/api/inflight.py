"""`/api/v1/requests` and `/api/v1/events`: what is going on."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import StreamingResponse

from supervisor.api.answers import RequestList
from supervisor.api.described import shaped, written
from supervisor.api.feed import EventStream
from supervisor.api.services import FeedOf, RequestsOf
from supervisor.core.requests.identity import MOST
from supervisor.service.requests import RequestStatus

router = APIRouter(prefix="/api/v1")

Name = Annotated[
    str, Path(min_length=1, max_length=MOST, description="Its number, or the `x-request-id` of its response.")
]


@router.get("/requests", **shaped(RequestList))
async def requests(requests: RequestsOf) -> dict[str, Any]:
    """The requests in flight, the oldest first."""
    return {"requests": [request.to_json() for request in requests.all()]}


@router.delete("/requests/{id}", **shaped(RequestStatus))
async def cancel(id: Name, requests: RequestsOf) -> dict[str, Any]:
    """End a request: its client gets the error `request_cancelled`, its engine's slot is freed."""
    return requests.cancel(id).to_json()


@router.get("/events", response_class=StreamingResponse, **written("text/event-stream"))
async def follow(feed: FeedOf) -> EventStream:
    """A snapshot, then what changes in models and requests."""
    return EventStream(feed, feed.events())
