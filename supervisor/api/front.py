"""The front door: `/` says where you are, `/ready` whether the models of the start are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from supervisor import __version__
from supervisor.api.services import ReadinessOf
from supervisor.core.requests.browsers import DASHBOARD, from_ollama, wants_page

router = APIRouter()

_LINKS: Final[Mapping[str, str]] = {
    "dashboard": DASHBOARD,
    "interface": "/docs",
    "schema": "/openapi.json",
    "models": "/v1/models",
    "status": "/api/v1/status",
    "health": "/health",
    "ready": "/ready",
}
_HEADERS: Final[Mapping[str, str]] = {
    "vary": "accept, user-agent",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@router.get("/", response_class=JSONResponse)
async def front(request: Request) -> Response:
    """Name, version and links; browsers are sent to the dashboard, and Ollama's clients told what they expect."""
    if wants_page(request.scope["headers"]):
        return RedirectResponse(DASHBOARD, 303, headers=dict(_HEADERS))
    if from_ollama(request.scope["headers"]):
        return PlainTextResponse("Ollama is running", headers=dict(_HEADERS))
    told = {"name": "llama-supervisor", "version": __version__, "links": dict(_LINKS)}
    return JSONResponse(told, headers=dict(_HEADERS))


@router.get("/ready")
async def ready(readiness: ReadinessOf) -> dict[str, str]:
    """Readiness: 503 with what is missing until every model with `preload` is loaded. Never wakes a model."""
    readiness.check(named=True)
    return {"status": "ready"}
