"""The OpenAI paths that FastAPI serves; the relayed ones are ASGI endpoints of `proxy`.

A model's card has all that llama-server's router tells in its list, so that clients of either find what they know.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict
from typing import Annotated, Any

import psutil
from fastapi import APIRouter, Header, Request, Response

from supervisor.api.services import ClusterOf, IdentityOf, ReadinessOf, RequestsOf, StatusesOf
from supervisor.config.base import Name, Target
from supervisor.core.requests.keys import Key
from supervisor.core.text.secrets import shown_arguments
from supervisor.proxy.metered import key_of
from supervisor.service.about import Identity
from supervisor.service.status import ModelStatus
from supervisor.service.statuses import Statuses
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

_RANK = ("unloaded", "loading", "ready")
_BEST = ("unloaded", "loading", "loaded")
"""States of models on nodes, the best last, and what the router calls them."""

_TEXT = {"input_modalities": ["text"], "output_modalities": ["text"]}  # what the router says where it does not know


@router.get("/health")
async def health(
    identity: IdentityOf,
    readiness: ReadinessOf,
    response: Response,
    ready: Name | None = None,
    challenge: Annotated[Name | None, Header(alias=CHALLENGE_HEADER)] = None,
) -> dict[str, str]:
    """Liveness of the daemon, with `?ready` its readiness, without names; never wakes a model.

    A challenge of the command line is answered with a proof.
    """
    if ready is not None:
        readiness.check(named=False)
    proof = None if challenge is None else prove(identity.secret, challenge, identity.port)
    if proof is not None:
        response.headers[PROOF_HEADER] = proof
    return {"status": "ok"}


@router.get("/v1/models")
async def models(statuses: StatusesOf, identity: IdentityOf, cluster: ClusterOf, request: Request) -> dict[str, Any]:
    """Every model that can be asked for, loaded or not; in a cluster those of all nodes."""
    found = cards(statuses, identity)
    there = _of_others(cluster.models(), key_of(request.scope), {card["id"] for card in found["data"]}, identity)
    return {**found, "data": [*found["data"], *there]}


@router.get("/v1/models/{model:path}")
async def model(statuses: StatusesOf, identity: IdentityOf, model: Target) -> dict[str, Any]:
    """One model; 404 where there is none."""
    status = statuses.of(model)
    return _card(status, statuses.engine_info(status.id), identity.started_at)


@router.post("/responses/{response_id}/cancel", include_in_schema=False)
@router.post("/v1/responses/{response_id}/cancel")
async def cancel_response(requests: RequestsOf, response_id: Name) -> dict[str, Any]:
    """End a streamed answer by its id; its stream ends with `request_cancelled`. 404 where it is complete."""
    request = requests.cancel_answer(response_id)
    return {
        "id": response_id,
        "object": "response",
        "created_at": request.since,
        "status": "cancelled",
        "model": request.model,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
    }


def _of_others(
    models: Mapping[str, Mapping[str, str]], key: Key | None, known: Set[str], identity: Identity
) -> list[dict[str, Any]]:
    """Return the cards of models that other nodes alone have."""
    return [
        {
            "id": model,
            "aliases": [],
            "tags": [],
            "object": "model",
            "owned_by": "llama-supervisor",
            "created": int(identity.started_at),
            "status": {"value": _BEST[max(map(_RANK.index, states.values()))], "args": [], "preset": ""},
            "architecture": dict(_TEXT),
            "source": "cluster",
            "can_remove": False,
            "abilities": None,
            "meta": {"n_ctx": None, "nodes": sorted(states)},
        }
        for model, states in sorted(models.items())
        if model not in known and (key is None or key.rules.sees(model))
    ]


def router_status(status: ModelStatus) -> str:
    """`loaded`, `loading` or `unloaded`."""
    return _ROUTER_STATES.get(status.state, "unloaded")


def cards(statuses: Statuses, identity: Identity) -> dict[str, Any]:
    """All models, as OpenAI and the router list them."""
    shown = [_card(status, statuses.engine_info(status.id), identity.started_at) for status in statuses.all()]
    return {"object": "list", "data": shown}


def _card(status: ModelStatus, info: Mapping[str, Any], started_at: float) -> dict[str, Any]:
    """One model in a list. `info`: what its engine says of it."""
    told = info.get("architecture")
    meta = info.get("meta")
    return {
        "id": status.id,
        "aliases": list(status.aliases),
        "tags": [],
        "object": "model",
        "owned_by": "llama-supervisor",
        "created": int(status.loaded_at or started_at),
        "status": _status(status),
        "architecture": told if isinstance(told, dict) else dict(_TEXT),
        "source": "preset",
        "can_remove": False,
        "abilities": None if status.abilities is None else asdict(status.abilities),
        "meta": {**(meta if isinstance(meta, dict) else {}), "n_ctx": status.n_ctx},
    }


def _status(status: ModelStatus) -> dict[str, Any]:
    failed = {"failed": True, "exit_code": 1} if status.state in {"failed", "backoff"} else {}
    example = ["llama-server", "--alias", status.id, *(["--model", status.path] if status.path else [])]
    named = f"[{status.id}]\n" + (f"model = {status.path}\n" if status.path else "")
    return {"value": router_status(status), "args": command_of(status.pid) or example, "preset": named, **failed}


def command_of(pid: int | None) -> list[str]:
    """The command line of an engine, without secrets, which the configuration may have there; empty where none runs."""
    try:
        return shown_arguments(psutil.Process(pid).cmdline()) if pid is not None else []
    except psutil.Error:
        return []
