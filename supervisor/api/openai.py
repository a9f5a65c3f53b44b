"""The OpenAI paths that FastAPI serves; the relayed ones are ASGI endpoints of `proxy`.

A model's card has all that llama-server's router tells in its list, so that clients of either find what they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import psutil
from fastapi import APIRouter, Header, Response

from supervisor.api.service import Service, ServiceOf
from supervisor.config.base import Name, Target
from supervisor.system.proof import CHALLENGE_HEADER, PROOF_HEADER, prove

router = APIRouter()

_ROUTER_STATES: Mapping[str, str] = {
    "reserved": "loading",
    "loading": "loading",
    "ready": "loaded",
    "draining": "loaded",
    "stopping": "loaded",
}
"""Ours → the router's; any other is `unloaded`."""

_TEXT = {"input_modalities": ["text"], "output_modalities": ["text"]}  # what the router says where it does not know


@router.get("/health")
async def health(
    service: ServiceOf, response: Response, challenge: Annotated[Name | None, Header(alias=CHALLENGE_HEADER)] = None
) -> dict[str, str]:
    """Liveness of the daemon; never wakes a model. A challenge of the command line is answered with a proof."""
    proof = None if challenge is None else prove(service.secret, challenge, service.port)
    if proof is not None:
        response.headers[PROOF_HEADER] = proof
    return {"status": "ok"}


@router.get("/v1/models")
async def models(service: ServiceOf) -> dict[str, Any]:
    """Every model that can be asked for, loaded or not."""
    return {"object": "list", "data": [card(service, status) for status in service.models()]}


@router.get("/v1/models/{model:path}")
async def model(service: ServiceOf, model: Target) -> dict[str, Any]:
    """One model; 404 where there is none."""
    return card(service, service.model(model))


def router_status(status: Mapping[str, Any]) -> str:
    """`loaded`, `loading` or `unloaded`."""
    return _ROUTER_STATES.get(status["state"], "unloaded")


def card(service: Service, status: Mapping[str, Any]) -> dict[str, Any]:
    """One model in a list."""
    found = service.pool.status(status["id"]).best
    info = found.ready.info if found and found.ready else {}
    told = info.get("architecture")
    meta = info.get("meta")
    return {
        "id": status["id"],
        "aliases": status["aliases"],
        "tags": [],
        "object": "model",
        "owned_by": "llama-supervisor",
        "created": int(status["loaded_at"] or service.started_at),
        "status": _status(status),
        "architecture": told if isinstance(told, dict) else dict(_TEXT),
        "source": "preset",
        "can_remove": False,
        "meta": {**(meta if isinstance(meta, dict) else {}), "n_ctx": status["n_ctx"]},
    }


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    failed = {"failed": True, "exit_code": 1} if status["state"] in {"failed", "backoff"} else {}
    example = ["llama-server", "--alias", status["id"], *(["--model", status["path"]] if status["path"] else [])]
    named = f"[{status['id']}]\n" + (f"model = {status['path']}\n" if status["path"] else "")
    return {"value": router_status(status), "args": command_of(status["pid"]) or example, "preset": named, **failed}


def command_of(pid: int | None) -> list[str]:
    """The command line of an engine; empty where there is none."""
    try:
        return psutil.Process(pid).cmdline() if pid is not None else []
    except psutil.Error:
        return []
