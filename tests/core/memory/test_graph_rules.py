"""Rules of the compute buffer that a single shape would not show; sizes are those that llama-server logged."""

from __future__ import annotations

import pytest

from supervisor.core.memory import EstimateOptions
from supervisor.core.memory.facts import facts_of
from supervisor.core.memory.patterns import MOST_CHARACTERS, BadPattern, check_pattern
from tests.core.memory.support import MIB, estimated, spec_of


def test_zeros_of_sparse_attention_are_there_for_every_layer() -> None:
    """DeepSeek-V3.2, 61 layers: 244 of its 652 MiB."""
    options = EstimateOptions(ctx_size=8192, parallel=1, devices=("RPC0",))
    assert estimated(spec_of("deepseek-v3.2"), options).compute_bytes / MIB == pytest.approx(652.08, rel=0.15)


def test_a_rollback_keeps_copies_of_the_state() -> None:
    """LFM2 can take back what a draft got wrong: a copy of its state for each drafted token."""
    spec = spec_of("lfm2/wide")
    assert spec.architecture.rollback
    plain = estimated(spec, EstimateOptions(ctx_size=4096, parallel=2))
    assert plain.recurrent_bytes == 2 * sum(facts_of(spec).states)


def test_gates_in_the_queries_tensor_are_seen() -> None:
    assert facts_of(spec_of("qwen35/wide")).widths.gated
    assert not facts_of(spec_of("qwen3/wide")).widths.gated


def test_experts_that_are_never_used_take_no_buffer() -> None:
    assert facts_of(spec_of("refact+experts/wide")).widths.routed == 0
    assert facts_of(spec_of("llama+experts/wide")).widths.routed > 0


def test_a_pattern_may_have_as_many_characters_as_is_said() -> None:
    check_pattern("x" * MOST_CHARACTERS)
    with pytest.raises(BadPattern, match=str(MOST_CHARACTERS)):
        check_pattern("x" * (MOST_CHARACTERS + 1))
