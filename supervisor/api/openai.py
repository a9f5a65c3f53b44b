"""The OpenAI paths that FastAPI serves; the relayed ones are ASGI endpoints of `proxy`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from supervisor.api.service import Service

router = APIRouter()


@router.get("/health")
async def health() -> dict[str, str]:
    """Liveness of the daemon; never wakes a model."""
    return {"status": "ok"}


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """Every model that can be asked for, loaded or not."""
    service: Service = request.app.state.service
    return {"object": "list", "data": [_card(service, status) for status in service.models()]}


@router.get("/v1/models/{model:path}")
async def model(request: Request, model: str) -> dict[str, Any]:
    """One model; 404 where there is none."""
    service: Service = request.app.state.service
    return _card(service, service.model(model))


def _card(service: Service, status: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": status["id"],
        "object": "model",
        "created": int(status["loaded_at"] or service.started_at),
        "owned_by": "llama-supervisor",
        "aliases": status["aliases"],
        "status": {"value": "loaded" if status["state"] == "ready" else status["state"]},
        "meta": {"n_ctx": status["n_ctx"]},
    }
