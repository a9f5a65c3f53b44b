"""`/docs`: the interface, to read and to try, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse

router = APIRouter(prefix="/docs", include_in_schema=False)

_POLICY = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self' 'unsafe-inline'",  # the viewer makes style elements
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
))
_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_PIECE = 1 << 14  # bytes
_PACKED: Mapping[str, str] = {**_HEADERS, "content-encoding": "gzip", "cache-control": "max-age=3600"}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>llama-supervisor</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/viewer.css">
</head>
<body>
<div id="interface"></div>
<script src="/docs/viewer.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#interface",
  deepLinking: true,
  validatorUrl: null,
});
"""


@router.get("")
async def page() -> Response:
    """The page."""
    return Response(_PAGE, media_type="text/html", headers=dict(_HEADERS))


@router.get("/start.js")
async def start() -> Response:
    """Return the script that starts the page; one within the page would break the page's own policy."""
    return Response(_START, media_type="text/javascript", headers=dict(_HEADERS))


@router.get("/viewer.js")
async def viewer() -> Response:
    """The viewer (viewer/README.md)."""
    return _file("swagger-ui-bundle.js.gz", "text/javascript")


@router.get("/viewer.css")
async def style() -> Response:
    """Its style."""
    return _file("swagger-ui.css.gz", "text/css")


def _file(name: str, kind: str) -> Response:
    """Return a file in pieces of which one waits at a time: clients that do not read would hold half a MiB each."""
    data = _packed(name)
    headers = {**_PACKED, "content-length": str(len(data))}
    return StreamingResponse(_pieces(data), media_type=kind, headers=headers)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


@cache
def _packed(name: str) -> bytes:
    return (files("supervisor.api") / "viewer" / name).read_bytes()
