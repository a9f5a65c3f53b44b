"""The front door: `/` says where you are, `/ready` whether the models of the start are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from supervisor import __version__
from supervisor.api.services import ReadinessOf

router = APIRouter()

_LINKS: Final[Mapping[str, str]] = {
    "interface": "/docs",
    "schema": "/openapi.json",
    "models": "/v1/models",
    "status": "/api/v1/status",
    "health": "/health",
    "ready": "/ready",
}
_SAID: Final[Mapping[str, str]] = {
    "interface": "Every call, to read and to try",
    "schema": "The schema behind it",
    "models": "The models",
    "status": "The daemon, its engine and its models",
    "health": "Whether the daemon lives",
    "ready": "Whether the models of the start are loaded",
}
_HEADERS: Final[Mapping[str, str]] = {
    "vary": "accept",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>llama-supervisor</title>
<link rel="icon" href="data:,">
</head>
<body>
<h1>llama-supervisor {version}</h1>
<p>One daemon that runs many llama.cpp models on one machine.
OpenAI clients use this address with <code>/v1</code> at its end.</p>
<ul>
{links}
</ul>
</body>
</html>
"""


@router.get("/", response_class=JSONResponse)
async def front(request: Request) -> Response:
    """Name, version and links: a page for browsers, JSON for everybody else."""
    if "text/html" in request.headers.get("accept", ""):
        links = "\n".join(f'<li><a href="{path}">{_SAID[name]}</a></li>' for name, path in _LINKS.items())
        return HTMLResponse(_PAGE.format(version=__version__, links=links), headers=dict(_HEADERS))
    told = {"name": "llama-supervisor", "version": __version__, "links": dict(_LINKS)}
    return JSONResponse(told, headers=dict(_HEADERS))


@router.get("/ready")
async def ready(readiness: ReadinessOf) -> dict[str, str]:
    """Readiness: 503 with what is missing until every model with `preload` is loaded. Never wakes a model."""
    readiness.check(named=True)
    return {"status": "ready"}
