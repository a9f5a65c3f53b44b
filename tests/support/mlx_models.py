"""Small models of many kinds, made and run by mlx-lm itself: what it says of their bytes.

    PYTHON tests/support/mlx_models.py FOLDER    PYTHON: of an environment with mlx-lm

Imports nothing of this program. Writes each model into a folder of its own, and a line of JSON for each.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STEP = 256
TOKENS = 512
_WINDOW = 128

_PLAIN = {
    "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 128, "rope_theta": 10000.0,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "head_dim": 32,
}  # fmt: skip
_LATENT = {
    "kv_lora_rank": 24, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12,
    "n_routed_experts": None, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "n_shared_experts": None,
    "first_k_dense_replace": 4, "num_key_value_heads": 4,
}  # fmt: skip
_YARN = {
    "type": "yarn", "factor": 1.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
    "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip
_SCAN = {
    "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_n_groups": 1,
    "mamba_proj_bias": False, "mamba_conv_bias": True, "attention_bias": False,
}  # fmt: skip
_MOE = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "norm_topk_prob": True, "shared_expert_intermediate_size": 32,
}  # fmt: skip
_DELTA = {
    "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
    "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.5,
}  # fmt: skip
_SWA = {"sliding_window": _WINDOW, "num_hidden_layers": 4}
_TYPES = {**_SWA, "layer_types": ["sliding_attention", "full_attention"] * 2}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"head_dim": 64},
    "llama, tied": {"tie_word_embeddings": True},
    "llama, windows": _TYPES,
    "qwen2": {"head_dim": None},
    "qwen3": {"head_dim": 64},
    "qwen3_moe": _MOE,
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 32},
    "gemma3_text": {**_SWA, "sliding_window_pattern": 2, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 32},
    "mistral": {},
    "olmo2": {"head_dim": None},
    "olmo3": _SWA,
    "phi3": {"head_dim": None},
    "cohere2": {**_SWA, "head_dim": 16, "layer_norm_eps": 1e-5},
    "gpt_oss": {**_SWA, "num_local_experts": 4, "num_experts_per_tok": 2},
    "exaone4": {**_SWA, "sliding_window_pattern": "LLG", "rope_scaling": None},
    "deepseek_v2": {**_LATENT, "rope_scaling": _YARN},
    "deepseek_v3": {**_LATENT, "rope_scaling": None},
    "minicpm3": {
        **_LATENT, "dim_model_base": 64, "scale_depth": 1.0, "scale_emb": 1,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 4,
                         "original_max_position_embeddings": 4096},
    },
    "lfm2": {
        "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "block_dim": 64, "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False, "block_ff_dim": 96,
        "full_attn_idxs": [1], "num_hidden_layers": 3,
    },
    "mamba2": {
        "num_heads": 4, "head_dim": 32, "state_size": 16, "layer_norm_epsilon": 1e-5, "conv_kernel": 4, "n_groups": 1,
        "use_bias": False, "use_conv_bias": True, "time_step_limit": [0.0, 100.0], "time_step_rank": 8,
        "intermediate_size": 128,
    },
    "qwen3_next": {**_MOE, **_DELTA},
    "qwen3_5": {**_DELTA, "text_config": {**_PLAIN, **_DELTA, "model_type": "qwen3_5"}},
    "jamba": {
        "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2,
        "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_expand": 2, "num_experts": 1, "num_experts_per_tok": 1,
        "mamba_dt_rank": 4, "mamba_proj_bias": False, "mamba_conv_bias": True, "head_dim": None,
    },
    "falcon_h1": {**_SCAN, "mamba_d_ssm": 128, "mamba_expand": 2, "mamba_chunk_size": 128},
    "granitemoehybrid": {
        **_SCAN, "layer_types": ["mamba", "attention"], "embedding_multiplier": 1.0, "attention_multiplier": 1.0,
        "logits_scaling": 1.0, "residual_multiplier": 1.0, "position_embedding_type": "rope", "head_dim": None,
        "shared_intermediate_size": 96, "num_local_experts": None, "num_experts_per_tok": None,
    },
    "nemotron_h": {
        "hybrid_override_pattern": "M-*-", "num_hidden_layers": 4, "mamba_num_heads": 4, "mamba_head_dim": 32,
        "mamba_proj_bias": False, "ssm_state_size": 16, "conv_kernel": 4, "n_groups": 1, "mlp_bias": False,
        "layer_norm_epsilon": 1e-5, "use_bias": False, "use_conv_bias": True, "attention_bias": False,
        "time_step_limit": [0.0, 100.0],
    },
    "gemma4_text": {
        **_SWA, "num_kv_shared_layers": 1, "global_head_dim": 64, "sliding_window_pattern": 2,
        "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 128,
    },
    "deepseek_v32": {**_LATENT, "rope_scaling": None, "index_head_dim": 16, "index_n_heads": 2, "index_topk": 64},
    "rwkv7": {
        "norm_eps": 1e-5, "head_dim": 32, "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
    },
    "recurrent_gemma": {
        "attention_bias": False, "conv1d_width": 4, "logits_soft_cap": 30.0, "attention_window_size": _WINDOW,
        "embeddings_scale_by_sqrt_dim": True, "block_types": ["recurrent", "attention"], "num_key_value_heads": 1,
    },
}  # fmt: skip
FLOAT32 = ("rwkv7", "qwen3_moe", "gpt_oss", "qwen3_next")  # rwkv7: in the state; the others: experts on a CPU
QUANTISED_CACHE = ("llama", "qwen3")


def _configuration(name: str) -> dict[str, Any]:
    kind = name.partition(",")[0]
    return {"model_type": kind, **_PLAIN, **CONFIGS[name]}


def _make(mx: Any, name: str) -> tuple[dict[str, Any], Any]:
    config = _configuration(name)
    kind, arguments = importlib.import_module("mlx_lm.utils")._get_classes(config)
    model = kind(arguments.from_dict(config))
    model.set_dtype(mx.float32 if name in FLOAT32 else mx.bfloat16)
    mx.eval(model.parameters())
    return config, model


def _most_held(mx: Any, model: Any, bits: int) -> int:
    """Return the most that its caches hold while it reads a prompt."""
    caches = importlib.import_module("mlx_lm.models.cache").make_prompt_cache(model)
    most = 0
    for _ in range(TOKENS // STEP):
        mx.eval(model(mx.zeros((1, STEP), dtype=mx.int32), cache=caches))
        if bits:
            caches = [_quantised(one, bits) for one in caches]
        most = max(most, sum(map(_held, caches)))
    return most


def _quantised(one: Any, bits: int) -> Any:
    return one.to_quantized(group_size=64, bits=bits) if hasattr(one, "to_quantized") else one


def _held(one: Any) -> int:
    """Return the bytes of a cache's arrays."""
    if hasattr(one, "caches"):
        return sum(map(_held, one.caches))
    return _bytes(one.cache if hasattr(one, "cache") else [one.keys, one.values])


def _bytes(arrays: Any) -> int:
    flat = importlib.import_module("mlx.utils").tree_flatten(arrays)
    return sum(value.nbytes for _, value in flat if value is not None)


def _measured(mx: Any, name: str, folder: Path) -> dict[str, Any]:
    """Write a model into a folder; return what is held of it."""
    config, model = _make(mx, name)
    folder.mkdir()
    tensors = importlib.import_module("mlx.utils").tree_flatten(model.parameters())
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tensors))
    (folder / "config.json").write_text(json.dumps(config))
    caches = {str(bits): _most_held(mx, model, bits) for bits in ((0, 8, 4) if name in QUANTISED_CACHE else (0,))}
    return {"folder": folder.name, "weights": _bytes(model.parameters()), "caches": caches}


def main(folder: Path) -> None:
    """Measure every model."""
    mx = importlib.import_module("mlx.core")
    mx.set_default_device(mx.cpu)
    for name in CONFIGS:
        sys.stdout.write(json.dumps(_measured(mx, name, folder / name.replace(", ", "-"))) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
