"""Tensors of fewer dimensions than a model's have: to ggml each further dimension is 1, so it is here."""

from __future__ import annotations

import io

import pytest

from supervisor.core.gguf import read_header
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.spec import read_spec
from tests.support.gguf_bytes import STRING, model, pair, tensor

LLAMA = [
    pair("general.architecture", STRING, "llama"),
    *(pair(f"llama.{key}", 4, 64) for key in ("context_length", "embedding_length", "feed_forward_length")),
    *(pair(f"llama.{key}", 4, 1) for key in ("block_count", "attention.head_count")),
]


@pytest.mark.parametrize("shape", [[], [1], [64]])
@pytest.mark.parametrize(
    "name", ["attn_q", "attn_q_a", "attn_kv_a_mqa", "ffn_up", "ffn_down", "ffn_gate", "ffn_down_exps", "ffn_up_shexp"]
)
def test_a_flat_tensor_is_counted(name: str, shape: list[int]) -> None:
    flat = tensor(f"blk.0.{name}.weight", shape, 0, 0)
    header = read_header(io.BytesIO(model(LLAMA, [flat], 256)))
    assert isinstance(estimate(read_spec(header), EstimateOptions(ctx_size=64)), MemoryEstimate)
