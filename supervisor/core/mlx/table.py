"""Which caches a model of each `model_type` keeps, as mlx-lm 0.32 builds them; one row for each type.

A type without a row counts as full attention in all layers. That is more than it needs, if it has windows or states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from supervisor.core.mlx.caches import CacheKind, LayerCache, full, sliding
from supervisor.core.mlx.config import ConfigReader
from supervisor.core.mlx.heads import attention, compressed, expanded, kv_heads, split_attention, split_width
from supervisor.core.mlx.recurrent import (
    delta_net,
    falcon_h1,
    gated_short,
    granite_hybrid,
    griffin,
    jamba,
    kimi_linear,
    mamba,
    mamba2,
    nemotron_h,
    rwkv7,
)

Caches: TypeAlias = tuple[LayerCache, ...]
Rule: TypeAlias = Callable[[ConfigReader], Caches]

_FULL, _SLIDING = "full_attention", "sliding_attention"


def caches_of(model_type: str, config: ConfigReader) -> Caches:
    """Return the caches of a sequence. Raise ModelConfigError where the configuration lacks what decides them."""
    rule = _RULES.get(_SAME.get(model_type, model_type)) or _RULES.get(config.text("model_type"), _plain)
    return rule(config)


def is_known(model_type: str) -> bool:
    """Return whether there is a row for a type."""
    return _SAME.get(model_type, model_type) in _RULES


def _plain(config: ConfigReader) -> Caches:
    return (attention(config),) * config.layers


def _split(config: ConfigReader) -> Caches:
    return (split_attention(config),) * config.layers


def _windowed(one: LayerCache, window: int) -> LayerCache:
    return replace(one, kind=CacheKind.SLIDING, window=window)


def _by_types(config: ConfigReader, otherwise: str, name: str = "sliding_window") -> Caches:
    """Return the caches of layers that `layer_types` names: full ones, and windows, which others count as."""
    kinds = config.items("layer_types") or (otherwise,) * config.layers
    return tuple(
        attention(config) if kind == _FULL else _windowed(attention(config), config.positive(name)) for kind in kinds
    )


def _types_or_full(config: ConfigReader) -> Caches:
    return _by_types(config, _FULL)


def _pattern(default: int, head: int, window: int) -> Rule:
    """Return the rule of models of which every so-manieth layer is full; with the defaults of the type."""

    def rule(config: ConfigReader) -> Caches:
        every = config.positive("sliding_window_pattern", default=default)
        width = kv_heads(config) * config.positive("head_dim", default=head)
        kept = sliding(width, width, config.positive("sliding_window", default=window))
        return tuple(full(width, width) if place % every == every - 1 else kept for place in range(config.layers))

    return rule


def _alternating(config: ConfigReader) -> Caches:
    """Return the caches of GPT-OSS: windows and full attention in turns, unless `layer_types` says otherwise."""
    turns = (_SLIDING, _FULL) * (config.layers // 2)
    kinds = config.items("layer_types") or turns
    width = config.positive("num_key_value_heads", default=8) * config.positive("head_dim", default=64)
    kept = sliding(width, width, config.positive("sliding_window", default=128))
    return tuple(full(width, width) if kind == _FULL else kept for kind in kinds)


def _every_fourth(config: ConfigReader) -> Caches:
    """Return the caches of OLMo 3: every fourth layer is full, unless `layer_types` says otherwise."""
    kinds = config.items("layer_types") or tuple(
        _SLIDING if (place + 1) % 4 else _FULL for place in range(config.layers)
    )
    kept = _windowed(attention(config), config.positive("sliding_window"))
    return tuple(attention(config) if kind == _FULL else kept for kind in kinds)


def _letters(config: ConfigReader) -> Caches:
    """Return the caches of EXAONE 4: `L` is a window, in a pattern that repeats."""
    letters = config.items("sliding_window_pattern")
    if not letters:
        return _plain(config)
    kept = _windowed(attention(config), config.positive("sliding_window"))
    return tuple(kept if letters[place % len(letters)] == "L" else attention(config) for place in range(config.layers))


def _chunked(config: ConfigReader) -> Caches:
    """Return the caches of Llama 4: chunks, which count as windows, and every fourth layer full."""
    kept = _windowed(attention(config), config.positive("attention_chunk_size"))
    return tuple(kept if (place + 1) % 4 else attention(config) for place in range(config.layers))


def _shared_last(config: ConfigReader) -> Caches:
    """Return the caches of Gemma 3n: its last layers use those of earlier ones."""
    own = config.layers - config.number("num_kv_shared_layers", default=0)
    return _types_or_full(config)[:own]


def _gemma4(config: ConfigReader) -> Caches:
    """Return the caches of Gemma 4: as Gemma 3n, and heads of another width where attention is full."""
    own = config.layers - config.number("num_kv_shared_layers", default=20)
    heads, head = config.positive("num_key_value_heads", default=1), config.positive("head_dim", default=256)
    few = config.integer("num_global_key_value_heads") if config.flag("attention_k_eq_v") else None
    wide = (few or heads) * (config.number("global_head_dim", default=512) or head)
    every = config.positive("sliding_window_pattern", default=5)
    kinds = config.items("layer_types") or tuple(
        _SLIDING if (place + 1) % every else _FULL for place in range(config.layers)
    )
    kept = sliding(heads * head, heads * head, config.positive("sliding_window", default=512))
    return tuple(full(wide, wide) if kind == _FULL else kept for kind in kinds[:own])


def _mimo(config: ConfigReader) -> Caches:
    """Return the caches of MiMo V2: windows have heads of their own, and values another width than keys."""
    wide = config.positive("num_key_value_heads")
    near = config.positive("swa_num_key_value_heads")
    whole = full(wide * config.positive("head_dim"), wide * config.positive("v_head_dim"))
    kept = sliding(
        near * config.positive("swa_head_dim"),
        near * config.positive("swa_v_head_dim"),
        config.positive("sliding_window_size"),
    )
    return tuple(kept if kind == 1 else whole for kind in config.items("hybrid_layer_pattern"))


def _latent(config: ConfigReader) -> Caches:
    return (compressed(config),) * config.layers


def _latent_with_index(config: ConfigReader) -> Caches:
    """Return the caches of DeepSeek V3.2: an index of keys beside each latent one, which it makes room twice for."""
    index = config.positive("index_head_dim", default=128)
    return (compressed(config), replace(full(index, index), kind=CacheKind.LATENT)) * config.layers


def _latent_twice(config: ConfigReader) -> Caches:
    return (compressed(config), compressed(config)) * config.layers


def _spread(config: ConfigReader) -> Caches:
    return (expanded(config, config.positive("v_head_dim")),) * config.layers


def _spread_split(config: ConfigReader) -> Caches:
    return (expanded(config, split_width(config)),) * config.layers


def _grouped(config: ConfigReader) -> Caches:
    """Return the caches of DBRX, whose heads of keys and values are set in `attn_config`."""
    width = config.within("attn_config").positive("kv_n_heads") * split_width(config)
    return (full(width, width),) * config.layers


def _per_layer(config: ConfigReader) -> Caches:
    """Return the caches of OpenELM, whose layers have different numbers of heads."""
    head = config.positive("head_dim")
    heads = [one for one in config.items("num_kv_heads") if isinstance(one, int) and 0 < one < 1 << 16]
    return tuple(full(one * head, one * head) for one in heads)


_PLAIN_TYPES = (
    *("apertus", "bitnet", "cohere", "deepseek", "dots1", "ernie4_5", "ernie4_5_moe", "exaone", "gemma", "gemma2"),
    *("glm", "glm4", "glm4_moe", "granite", "granitemoe", "helium", "hunyuan", "hunyuan_v1_dense", "internlm2"),
    *("internlm3", "lille-130m", "mimo", "minicpm", "minimax", "mixtral", "nemotron", "olmo", "olmo2", "olmoe", "phi"),
    *("phi3", "phimoe", "qwen", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3"),
    *("solar_open", "stablelm", "starcoder2", "telechat3", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"),
)
_SPLIT_TYPES = ("gpt2", "gpt_neox", "gptj", "phi3small", "nanochat")
_TYPES_OR_FULL = ("llama", "ministral3", "exaone_moe", "mellum", "laguna", "afmoe", "mistral3")

_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_PLAIN_TYPES, _plain),
    **dict.fromkeys(_SPLIT_TYPES, _split),
    **dict.fromkeys(_TYPES_OR_FULL, _types_or_full),
    **dict.fromkeys(("gemma3", "gemma3_text"), _pattern(6, 256, 512)),
    "cohere2": _pattern(4, 128, 4096),
    "gpt_oss": _alternating,
    "olmo3": _every_fourth,
    "exaone4": _letters,
    **dict.fromkeys(("llama4", "llama4_text"), _chunked),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), _shared_last),
    **dict.fromkeys(("gemma4", "gemma4_text"), _gemma4),
    "mimo_v2_flash": _mimo,
    **dict.fromkeys(("deepseek_v3", "kimi_k25", "kimi_vl", "glm4_moe_lite", "mistral4"), _latent),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _latent_with_index),
    "longcat_flash": _latent_twice,
    **dict.fromkeys(("deepseek_v2", "youtu_llm"), _spread),
    "minicpm3": _spread_split,
    "dbrx": _grouped,
    "openelm": _per_layer,
    "mamba": mamba,
    "mamba2": mamba2,
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm2-vl"), gated_short),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe"), delta_net),
    "falcon_h1": falcon_h1,
    "jamba": jamba,
    "granitemoehybrid": granite_hybrid,
    "nemotron_h": nemotron_h,
    "kimi_linear": kimi_linear,
    "recurrent_gemma": griffin,
    "rwkv7": rwkv7,
}

# Types that mlx-lm runs as another one
_SAME: Final = {
    "falcon_mamba": "mamba",
    "gemma4_unified": "gemma4",
    "iquestcoder": "llama",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "llava": "mistral3",
    "minimax_m2": "minimax",
    "mistral": "llama",
    "pixtral": "llama",
    "qwen2_5_vl": "qwen2_vl",
    "xverse": "llama",
}
