"""LM Studio's lists of models, `/api/v0/models`; a model's answers are relayed.

Shapes are those of LM Studio's documentation of its REST API (v0).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from supervisor.api.services import ListedOf, StatusesOf
from supervisor.config.base import Target
from supervisor.core.doors.ollama_models import FileFacts, details
from supervisor.service.listed import Listed
from supervisor.service.status import ModelStatus

router = APIRouter(prefix="/api/v0/models", tags=["LM Studio"])


@router.get("")
async def models(statuses: StatusesOf, listed: ListedOf) -> dict[str, Any]:
    """Every model that can be asked for, loaded or not."""
    return {"object": "list", "data": [_card(one, listed) for one in statuses.all()]}


@router.get("/{model:path}")
async def model(statuses: StatusesOf, listed: ListedOf, model: Target) -> dict[str, Any]:
    """One model; 404 where there is none."""
    return _card(statuses.of(model), listed)


def _card(status: ModelStatus, listed: Listed) -> dict[str, Any]:
    facts = listed.known(status.id)
    told = details(facts)
    loaded = status.state in {"ready", "draining"}
    return {
        "id": status.id,
        "object": "model",
        "type": _type(facts),
        "publisher": (status.hub or "").partition("/")[0],
        "arch": told["family"],
        "compatibility_type": "gguf",
        "quantization": told["quantization_level"],
        "state": "loaded" if loaded else "not-loaded",
        "max_context_length": facts.header.n_ctx_train if facts else status.n_ctx,
        **({"loaded_context_length": status.n_ctx} if loaded else {}),
    }


def _type(facts: FileFacts | None) -> str:
    if facts is not None and facts.embeds:
        return "embeddings"
    return "vlm" if facts is not None and "image" in facts.inputs else "llm"
