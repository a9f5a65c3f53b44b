"""Tokens of several tries together."""

from __future__ import annotations

from supervisor.core.recovery.typed import Chunk, Usage
from supervisor.core.recovery.usage import added, usage_in, with_spent

ONE: Usage = {
    "prompt_tokens": 10,
    "completion_tokens": 3,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 4},
}
TWO: Usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}


def test_tokens_are_added() -> None:
    both = {"prompt_tokens": 30, "completion_tokens": 8, "total_tokens": 38}
    assert added(ONE, TWO) == {**both, "prompt_tokens_details": {"cached_tokens": 4}}
    assert added(TWO, TWO) == {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
    assert added(None, ONE) == added(ONE, None) == ONE
    assert added(None, None) is None


def test_only_a_chunk_with_usage_changes() -> None:
    plain: Chunk = {"id": "c", "choices": []}
    assert with_spent(plain, ONE) is plain
    told: Chunk = {**plain, "usage": TWO}
    assert with_spent(told, None) is told
    assert with_spent(told, TWO)["usage"]["total_tokens"] == 50
    assert usage_in([plain, told]) == TWO
    assert usage_in([plain]) is None
