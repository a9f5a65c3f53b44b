"""Answers in the form of `/api/embed` and `/api/embeddings`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from supervisor.core.doors.turned import Telling

Json = dict[str, object]


def vectors(dimensions: int | None, answer: Mapping[str, Any], telling: Telling) -> Json:
    """Return the answer of `/api/embed`: every vector of length 1, cut to so many `dimensions` before."""
    found = [_vector(one) for one in answer.get("data") or ()]
    total, before = telling.elapsed()
    said: Json = {
        "model": telling.model,
        "embeddings": found if dimensions is None else [_cut(one, dimensions) for one in found],
        "total_duration": int(total * 1e9),
        "load_duration": int(before * 1e9),
    }
    tokens = (answer.get("usage") or {}).get("prompt_tokens")
    return {**said, "prompt_eval_count": tokens} if tokens else said


def vector(answer: Mapping[str, Any], telling: Telling) -> Json:
    """Return the answer of `/api/embeddings`: one vector, as the model gives it."""
    found = answer.get("data") or ()
    return {"embedding": _vector(found[0]) if found else []}


def _vector(one: Mapping[str, Any]) -> list[float]:
    found: list[float] = one["embedding"]
    return found


def _cut(found: list[float], dimensions: int) -> list[float]:
    kept = found[:dimensions]
    length = math.sqrt(math.fsum(value * value for value in kept))
    return [value / length for value in kept] if length else kept
