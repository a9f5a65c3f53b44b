"""The table of caches by model type, against what mlx-lm itself held of small models (`tests/support/mlx_models`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.mlx.config import parse_config
from supervisor.core.mlx.facts import MlxFacts, read_facts
from supervisor.core.mlx.memory import MlxSettings, cache_bytes, estimate, max_context
from supervisor.errors import ModelConfigError
from tests.support.safetensors import SMALL_LLAMA

MEASURED: dict[str, Any] = json.loads(Path(__file__).with_name("measured.json").read_text())
_FLOAT32 = {"rwkv7", "qwen3_moe", "gpt_oss", "qwen3_next"}  # as they were run


def facts(config: Mapping[str, Any], width: int = 2) -> MlxFacts:
    return replace(read_facts([], config), dtype_bytes=width)


@pytest.mark.parametrize("name", MEASURED)
def test_caches_are_those_of_mlx_to_the_byte(name: str) -> None:
    row = MEASURED[name]
    found = facts(row["config"], 4 if name in _FLOAT32 else 2)
    assert found.known
    for bits, held in row["caches"].items():
        settings = MlxSettings(512, kv_bits=int(bits) or None, prefill_step=256)
        assert cache_bytes(found, settings) == held


def test_enough_kinds_of_models_were_measured() -> None:
    assert len(MEASURED) >= 12
    kinds = {kind for row in MEASURED.values() for kind in facts(row["config"]).kinds}
    assert kinds == {"full", "sliding", "latent", "recurrent"}


def test_a_context_is_rounded_up_to_the_step_of_a_cache() -> None:
    found = facts(dict(SMALL_LLAMA))
    sizes = [cache_bytes(found, MlxSettings(context)) for context in (1, 256, 257, 512)]
    assert sizes == [131072, 131072, 262144, 262144]


def test_a_model_type_that_nobody_knows_counts_as_full_and_says_so() -> None:
    found = facts({**SMALL_LLAMA, "model_type": "new", "sliding_window": 8, "layer_types": ["sliding_attention"] * 2})
    assert not found.known
    assert found.kinds == {"full": 2}


def test_sequences_and_the_prompt_cache_count() -> None:
    found = facts(dict(SMALL_LLAMA))
    one, four = estimate(found, MlxSettings(256)), estimate(found, MlxSettings(256, 4, prompt_cache_bytes=1000))
    assert four.cache == 4 * one.cache
    assert four.prompt_cache == 1000
    assert four.total == four.weights + four.cache + 1000 + four.compute + four.base


def test_the_longest_context_fits_and_the_next_one_does_not() -> None:
    found = facts(dict(SMALL_LLAMA))
    room = estimate(found, MlxSettings(1024)).total
    assert max_context(found, MlxSettings(0), room) == 1024
    assert max_context(found, MlxSettings(0), room - 1) == 768
    assert max_context(found, MlxSettings(0), 1 << 40) == found.n_ctx_train
    assert max_context(found, MlxSettings(0), 1) == 0


def test_a_cache_with_windows_cannot_be_quantised() -> None:
    assert facts(MEASURED["qwen3"]["config"]).quantisable
    assert not facts(MEASURED["olmo3"]["config"]).quantisable
    assert not facts(MEASURED["deepseek_v3"]["config"]).quantisable


def test_a_configuration_may_hold_what_python_writes() -> None:
    text = json.dumps({**SMALL_LLAMA, "time_step_limit": [0.0, float("inf")]})
    assert "Infinity" in text
    assert facts(parse_config(text.encode())) == facts(SMALL_LLAMA)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ModelConfigError):
        parse_config(text.encode())


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": None},
        {"model_type": "\ud800"},
        {"model_type": "a\x1b[2J"},
        {"model_type": "a" * 129},
        {"num_hidden_layers": None},
        {"num_hidden_layers": 1 << 20},
        {"num_hidden_layers": True},
        {"hidden_size": "64"},
        {"head_dim": -1},
        {"num_key_value_heads": 0},
        {"num_key_value_heads": 1 << 40},
        {"model_type": "openelm", "num_kv_heads": [1] * 5000},
        {"model_type": "cohere2", "sliding_window_pattern": 0},
        {"model_type": "kimi_linear", "linear_attn_config": 7},
    ],
)
def test_a_configuration_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ModelConfigError) as refused:
        read_facts([], {**SMALL_LLAMA, **change})
    assert refused.value.code == "model_config_invalid"
