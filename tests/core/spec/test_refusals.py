"""What makes a header unreadable: missing keys, impossible values; and that nothing else goes wrong."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.gguf import ArraySummary, GgufValue
from supervisor.core.spec import ARCHITECTURES, read_spec
from supervisor.errors import ModelFileError
from tests.support.headers import STANDARD, header, model

_STATE_SPACE = ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank")
_INDEXER = ("attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k")
_LATENT = ("attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank")

REQUIRED = [
    *(("llama", key) for key in ("block_count", "context_length", "embedding_length")),
    *(("mamba", key) for key in _STATE_SPACE),
    *(("qwen35", key) for key in (*_STATE_SPACE, "ssm.group_count")),
    *(("deepseek32", key) for key in (*_INDEXER, "attention.kv_lora_rank")),
    *(("kimi-linear", key) for key in (*_LATENT, "kda.head_dim", "ssm.conv_kernel")),
    *(("glm5-next", key) for key in (*_LATENT, *_INDEXER, "attention.indexer.kpool")),
    *(("gemma4", f"attention.sliding_window{part}") for part in ("", "_pattern")),
    *(("deepseek4", key) for key in (*_INDEXER, "hyper_connection.count", "attention.compress_ratios")),
    *((name, "attention.sliding_window") for name in ("cohere2", "gpt-oss", "gemma3n", "exaone-moe", "deepseek4")),
    ("dflash", "attention.sliding_window"),
    ("minimax-m3", "attention.indexer.block_size"),
    ("hy_v4", "attention.indexer.types"),
    ("dots3note", "attention.indexer.types"),
    ("rwkv7", "wkv.head_size"),
    ("lfm2", "shortconv.l_cache"),
    ("wavtokenizer-dec", "features_length"),
]


@pytest.mark.parametrize(("name", "key"), REQUIRED)
def test_a_missing_key_is_named(name: str, key: str) -> None:
    with pytest.raises(ModelFileError, match=f"^{name}\\.{key} is missing; llama.cpp does not load"):
        read_spec(model(name, {key: None}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 513),
        ("block_count", 1 << 40),
        ("block_count", -1),
        ("block_count", "8"),
        ("block_count", 8.5),
        ("block_count", float("inf")),
        ("block_count", (8,)),
        ("block_count", ArraySummary("u32", 5000)),
        ("embedding_length", -64),
        ("nextn_predict_layers", 9),
        ("attention.head_count", (8,) * 7),
        ("attention.head_count", (-1,) * 8),
        ("attention.head_count_kv", ("a",) * 8),
        ("attention.head_count_kv", ArraySummary("u32", 5000)),
        ("expert_count", 1025),
    ],
)
def test_an_impossible_value(key: str, value: GgufValue) -> None:
    with pytest.raises(ModelFileError, match=key.rpartition(".")[2] if value not in {0, 513} else "layers"):
        read_spec(model("llama", {key: value}))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("nanbeige", {"num_loops": 0}),
        ("nanbeige", {"num_loops": 65}),
        ("graniteswitch", {"block_count": 512}),
        ("qwen3next", {"full_attention_interval": 0}),
        ("deepseek4", {"attention.compress_ratios": (4,) * 7}),
        ("gemma4", {"attention.sliding_window_pattern": 6}),
        ("dots3note", {"attention.indexer.types": 1}),
        ("glm-dsa", {"attention.indexer.types": (1,) * 7}),
    ],
)
def test_what_llama_cpp_does_not_load(name: str, keys: dict[str, GgufValue | None]) -> None:
    with pytest.raises(ModelFileError, match=r"\w+"):
        read_spec(model(name, keys))


@pytest.mark.parametrize("value", [8, 8.0])
def test_a_whole_number_of_any_width(value: GgufValue) -> None:
    assert read_spec(model("llama", {"block_count": value})).n_layer_all == 8


_SCALARS = st.integers(-2, 20) | st.integers(-(2**63), 2**64) | st.booleans() | st.floats() | st.text(max_size=4)
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=9).map(tuple) | st.builds(ArraySummary, st.just("u32"), st.integers(0))
_KEYS = st.sampled_from([
    *STANDARD,
    *("nextn_predict_layers", "expert_count", "expert_used_count", "expert_feed_forward_length", "num_loops"),
    *("attention.sliding_window_pattern", "attention.recurrent_layers", "full_attention_interval", "vocab_size"),
    *("attention.shared_kv_layers", "attention.key_length", "attention.value_length", "attention.key_length_mla"),
    *("ple.layers", "ple.ngram_size", "ple.conv_kernel", "rope.scaling.factor", "rope.scaling.type"),
    *("attention.causal", "pooling_type", "embedding_length_out", "/tokenizer.ggml.tokens", "/general.type"),
    *("/tokenizer.chat_template", "/general.name", "/split.count", "/clip.has_vision_encoder"),
])


@given(st.sampled_from([*ARCHITECTURES, "unheard-of"]), st.dictionaries(_KEYS, st.none() | _VALUES, max_size=5))
def test_any_metadata_is_a_spec_or_a_reason(name: str, keys: dict[str, GgufValue | None]) -> None:
    try:
        found = read_spec(model(name, keys))
    except ModelFileError:
        return
    assert found.n_layer_all <= 512
    assert len(found.kv_layers) == len(found.recurrent_layers) == len(found.swa_layers) == found.n_layer_all
    numbers = (found.head_k, found.head_v, found.n_embd, found.n_vocab, found.window, *found.n_head_kv, *found.n_ff)
    assert min(numbers) >= 0
    assert found.indexer is None or len(found.indexer.layers) == found.n_layer_all
    assert found.experts is None or len(found.experts.used) == found.n_layer_all


@given(st.dictionaries(st.text(max_size=30), _VALUES, max_size=5), st.text(max_size=8))
def test_any_keys_at_all(metadata: dict[str, GgufValue], architecture: str) -> None:
    with suppress(ModelFileError):
        read_spec(header({**metadata, "general.architecture": architecture}, {"token_embd.weight": (4,)}))
