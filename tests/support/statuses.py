"""Statuses of models that are not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.service.status import ModelStatus

_NONE = dict.fromkeys((
    *("path", "hub", "stage", "progress", "download", "pid", "n_ctx", "n_slots", "loaded_at", "load_seconds"),
    *("rss_bytes", "size_bytes", "footprint", "expires_at", "plan", "error", "failed_at", "note", "abilities"),
))
_UNLOADED = ModelStatus(
    id="",
    aliases=(),
    source="file",
    state="unloaded",
    leases=0,
    waiting=0,
    pinned=False,
    given={},
    engines=(),
    variants=(),
    fallbacks=(),
    **_NONE,
)


def status_of(model: str, **known: Any) -> ModelStatus:
    """That of a model of which only this is known."""
    return replace(_UNLOADED, id=model, **known)
