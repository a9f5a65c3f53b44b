"""`/api/v1/captures`: prompts and answers that were captured, for keys with the scope `manage`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.captureforms import CapturePage, CapturesDeleted, CaptureShown
from supervisor.api.described import shaped
from supervisor.api.described import written as text_of
from supervisor.api.large import told
from supervisor.api.services import CapturesOf
from supervisor.config.base import Flag, Strict, Target
from supervisor.core.requests.captured import route_asked
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.core.text.members import set_fields
from supervisor.errors import RecordNotFound
from supervisor.service.captures import Captures
from supervisor.store.captures import Row

router = APIRouter(prefix="/api/v1/captures")

_MOST: Final = 1000
_OWN_HEADERS: Final = frozenset({b"content-length", b"content-type", b"transfer-encoding"})

Name = Annotated[str | None, Query(max_length=512)]
Number = Annotated[int, Path(ge=1, le=1 << 62)]


class Replay(Strict):
    """What to change in a request that is sent again: its model (null: as it was), whether its answer is a stream."""

    model: Target | None = None
    stream: Flag | None = None


@router.get("", **shaped(CapturePage))
async def listed(
    captures: CapturesOf,
    model: Name = None,
    key: Name = None,
    before: Annotated[int | None, Query(ge=1, le=1 << 62, description="The `next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=_MOST)] = 100,
) -> Response:
    """The captured requests, newest first, without their texts."""
    found = await captures.newest(limit + 1, before, model, key)
    last = found[limit - 1][0] if len(found) > limit else None
    on = captures.on
    return await told(lambda: {"on": on, "captures": [_row(one) for one in found[:limit]], "next": last})


@router.get("/export", response_class=StreamingResponse, **text_of("application/jsonl"))
async def export(captures: CapturesOf, model: Name = None, key: Name = None) -> StreamingResponse:
    """All captured requests with their texts, newest first, an object a line."""
    return StreamingResponse(
        lines(captures, model, key), media_type="application/jsonl", headers={"cache-control": "no-store"}
    )


@router.get("/{id}", **shaped(CaptureShown))
async def shown(id: Number, captures: CapturesOf) -> Response:
    """Show one with its headers, its request and its answer."""
    return await told(partial(_shown, await captures.find(id)))


@router.post("/{id}/replay", response_class=Response)
async def replay(id: Number, body: Replay, captures: CapturesOf, request: Request) -> Response:
    """Send one again, to its model or another one. The answer is that of the path that was asked, a stream too."""
    one = await captures.replayable(id)
    route = route_asked(one.record.path)
    assert route is not None  # else it could not be sent again
    changes = {"model": body.model or one.record.model} | ({} if body.stream is None else {"stream": body.stream})
    return _Again(request.app.state.replays[route.path], route.path, set_fields(one.asked.encode(), changes))


@router.delete("/{id}", **shaped(CapturesDeleted))
async def delete(id: Number, captures: CapturesOf) -> dict[str, Any]:
    """Delete one."""
    await captures.delete(id)
    return {"deleted": 1}


@router.delete("", **shaped(CapturesDeleted))
async def clear(captures: CapturesOf) -> dict[str, Any]:
    """Delete all; nothing of them stays in the file."""
    return {"deleted": await captures.clear()}


class _Again(Response):
    """The answer of a relayed path to a body of ours, in the place of what the client sent."""

    def __init__(self, endpoint: ASGIApp, path: str, sent: bytes) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._path = path
        self._sent = sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have it answered; a client that leaves ends it as ever."""
        asked: list[Message] = [{"type": "http.request", "body": self._sent, "more_body": False}]

        async def again() -> Message:
            return asked.pop() if asked else await receive()

        headers = [one for one in scope["headers"] if one[0] not in _OWN_HEADERS]
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(self._sent)).encode())]
        where = {"path": self._path, "raw_path": self._path.encode(), "query_string": b""}
        await self._endpoint({**scope, **where, "headers": headers + own}, again, send)


async def lines(captures: Captures, model: str | None, key: str | None) -> AsyncIterator[str]:
    """Yield the export, a line each; those that go away meanwhile are left out."""
    before: int | None = None
    while page := await captures.newest(_MOST, before, model, key):
        for number, _, _ in page:
            with suppress(RecordNotFound):  # gone since, to make room for newer ones
                yield await asyncio.to_thread(_line, await captures.find(number))
        before = page[-1][0]


def _line(row: Row) -> str:
    return f"{json.dumps(_shown(row))}\n"


def _row(row: Row) -> dict[str, Any]:
    number, size, one = row
    record, spent = one.record, one.record.spent
    return {
        "id": number,
        **{name: getattr(record, name) for name in ("at", "request_id", "path", "model", "key", "client", "stream")},
        **{name: getattr(record, name) for name in ("status", "code", "seconds")},
        **{name: getattr(spent, name) for name in ("prompt_tokens", "completion_tokens", "finish")},
        "size_bytes": size,
        "request_left_out": list(one.asked_left_out),
        "answer_left_out": list(one.answer_left_out),
        "replayable": not one.asked_left_out and route_asked(record.path) is not None,
    }


def _shown(row: Row) -> dict[str, Any]:
    one = row[2]
    return {**_row(row), "headers": one.headers, "request": _said(one.asked), "answer": _said(one.answer)}


def _said(text: str) -> object:
    """Return JSON as what it says, and what is none as the text that it is."""
    try:
        return parse(text) if text else None
    except NotJson:
        return text
