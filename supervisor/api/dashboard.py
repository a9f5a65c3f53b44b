"""`/ui`: the dashboard's files. Nothing in them is secret, so they need no key; what the page asks for does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from supervisor.errors import RouteNotFound
from supervisor.ui.files import PAGE, find

router = APIRouter(prefix="/ui", include_in_schema=False)

_POLICY: Final = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",  # images that somebody adds to a chat
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",  # with the next line: no text of a model can become HTML
    "trusted-types 'none'",
))
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",  # kept, and asked for again by its tag
}


@router.get("")
async def page(request: Request) -> Response:
    """The page."""
    return _answer(PAGE, request)


@router.get("/{name}")
async def file(name: str, request: Request) -> Response:
    """Return a file of the page. Raises RouteNotFound."""
    return _answer(name, request)


def _answer(name: str, request: Request) -> Response:
    found = find(name)
    if found is None:
        raise RouteNotFound(f"There is no GET /ui/{name}. The dashboard is at /ui.")
    headers = {**_HEADERS, "etag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
