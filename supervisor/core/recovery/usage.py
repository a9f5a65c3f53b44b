"""Add up the tokens of an answer for which the engine was asked more than once."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.recovery.typed import Chunk, Usage


def usage_in(chunks: Iterable[Chunk]) -> Usage | None:
    """Return the usage that some chunks tell; None where they do not."""
    return next((found for chunk in chunks if (found := chunk.get("usage"))), None)


def added(one: Usage | None, other: Usage | None) -> Usage | None:
    """Return the tokens of two answers together."""
    if one is None or other is None:
        return one or other
    cached = (_cached(one) or 0) + (_cached(other) or 0)
    read = one.get("prompt_tokens", 0) + other.get("prompt_tokens", 0)
    written = one.get("completion_tokens", 0) + other.get("completion_tokens", 0)
    both: Usage = {**other, "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return (
        both if _cached(one) is _cached(other) is None else {**both, "prompt_tokens_details": {"cached_tokens": cached}}
    )


def with_spent(chunk: Chunk, spent: Usage | None) -> Chunk:
    """Return a chunk whose usage has what earlier answers cost, too."""
    usage = chunk.get("usage")
    total = added(spent, usage) if usage and spent else None
    return chunk if total is None else {**chunk, "usage": total}


def _cached(usage: Usage) -> int | None:
    return (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
