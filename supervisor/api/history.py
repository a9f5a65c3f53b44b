"""`/api/v1/history`: requests and loads that have ended."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from supervisor.api.described import shaped, written
from supervisor.api.historyforms import Forgotten, HistoryPage, HistoryRow, HistorySummary, LoadPage
from supervisor.api.leaving import while_there
from supervisor.api.services import HistoryOf
from supervisor.core.history.questions import MOST_BUCKETS, MOST_ROWS, Wanted, summary
from supervisor.core.text import foreignjson
from supervisor.errors import RecordNotFound
from supervisor.service.history import History
from supervisor.store.history import HistoryTable, Numbered

router = APIRouter(prefix="/api/v1/history")

_HOUR_S: Final = 3600.0
_FORMULA: Final = re.compile(r"(^|[;|\t\r\n])(?=[=+\-@\t\r\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet may see the beginning of a formula: some cut cells at other marks than the comma."""

_COLUMNS: Final = tuple(one.name for one in fields(HistoryRow))

Name = Annotated[str | None, Query(max_length=512)]
Time = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False, description="Seconds since 1970.")]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]
Number = Annotated[int | None, Query(ge=1, le=1 << 62, description="The `next` of the page before.")]


@dataclass(frozen=True)
class _Filters:
    """The filters of a question, as the query has them."""

    model: Name = None
    key: Name = None
    path: Name = None
    status: Annotated[int | None, Query(ge=100, le=599)] = None
    code: Name = None
    since: Time = None
    until: Time = None
    before: Number = None


async def _wanted(filters: Annotated[_Filters, Depends(_Filters)]) -> Wanted:
    return Wanted(**asdict(filters))


WantedOf = Annotated[Wanted, Depends(_wanted)]


@router.get("", **shaped(HistoryPage))
async def requests(request: Request, history: HistoryOf, wanted: WantedOf, limit: Limit = 100) -> Response:
    """The requests that have ended, newest first; `next` is the `before` of the next page, null on the last."""

    def page(table: HistoryTable) -> dict[str, Any]:
        found = table.requests(wanted, limit + 1)
        return {"requests": [_shown(one) for one in found[:limit]], "next": _next(found, limit)}

    return await told(request, history, page)


@router.get("/summary", **shaped(HistorySummary))
async def summed(
    request: Request,
    history: HistoryOf,
    wanted: WantedOf,
    buckets: Annotated[int, Query(ge=1, le=MOST_BUCKETS)] = 60,
) -> Response:
    """Sum them up: in all, by model, and over the time from `since` (an hour ago) to `until` (now)."""
    until = time.time() if wanted.until is None else wanted.until
    since = until - _HOUR_S if wanted.since is None else wanted.since
    asked = replace(wanted, since=since, until=until)
    return await told(request, history, lambda table: summary(table.samples(asked), since, until, buckets))


@router.get("/loads", **shaped(LoadPage))
async def loads(
    request: Request, history: HistoryOf, model: Name = None, before: Number = None, limit: Limit = 100
) -> Response:
    """List what happened to engines: starts, ends, failures with their reason; newest first."""

    def page(table: HistoryTable) -> dict[str, Any]:
        found = table.loads(model, before, limit + 1)
        shown = [{"id": number, **one.to_json()} for number, one in found[:limit]]
        return {"loads": shown, "next": _next(found, limit)}

    return await told(request, history, page)


@router.get("/export", response_class=StreamingResponse, **written("text/csv", "application/jsonl"))
async def export(
    history: HistoryOf, wanted: WantedOf, format: Annotated[Literal["csv", "jsonl"], Query()] = "csv"
) -> StreamingResponse:
    """All requests that are wanted, newest first: a table with a head (CSV), or an object a line (JSONL)."""
    write, kind = (_csv, "text/csv") if format == "csv" else (_jsonl, "application/jsonl")
    return StreamingResponse(pages(history, wanted, write), media_type=kind)


@router.get("/{id}", **shaped(HistoryRow))
async def request(history: HistoryOf, id: Annotated[int, Path(ge=1, le=1 << 62)]) -> dict[str, Any]:
    """One of them."""
    found = await history.ask(lambda table: table.request(id))
    if found is None:
        raise RecordNotFound(f"The history has no request {id}; GET /api/v1/history lists what it has.", param="id")
    return _shown(found)


@router.delete("", **shaped(Forgotten))
async def forget(history: HistoryOf) -> dict[str, Any]:
    """Forget all requests and loads."""
    return {"requests": await history.ask(lambda table: table.clear())}


async def told(request: Request, history: History, question: Callable[[HistoryTable], dict[str, Any]]) -> Response:
    """Return what a question finds. The history's thread writes it, too: a page of it would hold the loop up."""

    def answer(table: HistoryTable) -> bytes:
        return foreignjson.written(question(table))

    return Response(await while_there(request, history.ask(answer)), media_type="application/json")


async def pages(history: History, wanted: Wanted, write: Callable[[list[Numbered], bool], str]) -> AsyncIterator[str]:
    """Yield the export; each page is made by the history's thread, and others' questions come between two of them."""

    def page(table: HistoryTable) -> tuple[str, int | None]:
        found = table.requests(asked, MOST_ROWS)
        return write(found, asked is wanted), found[-1][0] if len(found) == MOST_ROWS else None

    asked = wanted
    while True:
        text, last = await history.ask(page)
        yield text
        if last is None:
            return
        asked = replace(wanted, before=last)


def _csv(found: list[Numbered], first: bool) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS)
    if first:
        writer.writeheader()
    writer.writerows({name: _unquoted(value) for name, value in _shown(one).items()} for one in found)
    return text.getvalue()


def _jsonl(found: list[Numbered], first: bool) -> str:
    return "".join(f"{json.dumps(_shown(one))}\n" for one in found)


def _unquoted(value: object) -> object:
    """Return what no spreadsheet takes for a formula: clients choose some of the texts."""
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else value


def _shown(one: Numbered) -> dict[str, Any]:
    return {"id": one[0], **one[1].to_json()}


def _next(found: Sequence[tuple[int, object]], limit: int) -> int | None:
    return found[limit - 1][0] if len(found) > limit else None
