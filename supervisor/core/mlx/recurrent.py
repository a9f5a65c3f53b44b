"""The states of recurrent layers: some last inputs of a convolution, and a matrix for each head."""

from __future__ import annotations

from supervisor.core.mlx.caches import LayerCache, recurrent, sliding
from supervisor.core.mlx.config import ConfigReader
from supervisor.core.mlx.heads import attention, compressed, split_attention, split_width
from supervisor.errors import ModelConfigError


def _scan(config: ConfigReader, heads: int, width: int, state: int, groups: int, kernel: int) -> LayerCache:
    """Return the state of Mamba 2: its matrices are float32 (`ssm_update`)."""
    return recurrent((kernel - 1) * (heads * width + 2 * groups * state), heads * width * state)


def mamba2(config: ConfigReader) -> tuple[LayerCache, ...]:
    one = _scan(
        config,
        heads=config.positive("num_heads"),
        width=config.positive("head_dim"),
        state=config.positive("ssm_state_size", "state_size"),
        groups=config.positive("n_groups"),
        kernel=config.positive("conv_kernel"),
    )
    return (one,) * config.layers


def mamba(config: ConfigReader) -> tuple[LayerCache, ...]:
    inner = config.positive("intermediate_size", "d_inner")
    kernel, state = config.positive("conv_kernel", "d_conv"), config.positive("state_size", "d_state")
    return (recurrent(inner * (kernel - 1 + state)),) * config.layers


def gated_short(config: ConfigReader) -> tuple[LayerCache, ...]:
    """Return the caches of LFM2: short convolutions, and attention in some layers."""
    full_at = config.items("full_attn_idxs") or tuple(
        place for place, kind in enumerate(config.items("layer_types")) if kind == "full_attention"
    )
    state = recurrent((config.positive("conv_L_cache") - 1) * config.positive("hidden_size"))
    return tuple(split_attention(config) if place in full_at else state for place in range(config.layers))


def delta_net(config: ConfigReader) -> tuple[LayerCache, ...]:
    """Return the caches of Qwen3-Next and Qwen3.5: gated delta nets, with full attention in every fourth layer."""
    keys = config.positive("linear_num_key_heads") * config.positive("linear_key_head_dim")
    heads, width = config.positive("linear_num_value_heads"), config.positive("linear_value_head_dim")
    kernel = config.positive("linear_conv_kernel_dim", default=4)
    state = recurrent((kernel - 1) * (2 * keys + heads * width), heads * width * config.positive("linear_key_head_dim"))
    every = config.positive("full_attention_interval", default=4)
    return tuple(state if (place + 1) % every else attention(config) for place in range(config.layers))


def falcon_h1(config: ConfigReader) -> tuple[LayerCache, ...]:
    """Return the caches of Falcon H1: every layer has both."""
    one = _scan(
        config,
        heads=config.positive("mamba_n_heads"),
        width=config.positive("mamba_d_head"),
        state=config.positive("mamba_d_state"),
        groups=config.positive("mamba_n_groups", default=1),
        kernel=config.positive("mamba_d_conv", default=4),
    )
    return (one, attention(config)) * config.layers


def jamba(config: ConfigReader) -> tuple[LayerCache, ...]:
    inner = config.positive("mamba_expand") * config.positive("hidden_size")
    state = recurrent(inner * (config.positive("mamba_d_conv") - 1 + config.positive("mamba_d_state")))
    kinds = config.items("layers_block_type")
    if not kinds:
        period, offset = config.positive("attn_layer_period"), config.number("attn_layer_offset")
        kinds = tuple("attention" if place % period == offset else "mamba" for place in range(config.layers))
    return tuple(split_attention(config) if kind == "attention" else state for kind in kinds)


def granite_hybrid(config: ConfigReader) -> tuple[LayerCache, ...]:
    found = []
    for kind in config.items("layer_types"):
        if kind == "attention":
            found.append(split_attention(config))
            continue
        found.append(
            _scan(
                config,
                heads=config.positive("mamba_n_heads"),
                width=config.positive("mamba_d_head"),
                state=config.positive("mamba_d_state"),
                groups=config.positive("mamba_n_groups"),
                kernel=config.positive("mamba_d_conv"),
            )
        )
    return tuple(found)


_NEMOTRON = {"attention": "*", "full_attention": "*", "mamba": "M", "linear_attention": "M", "conv": "M"}


def nemotron_h(config: ConfigReader) -> tuple[LayerCache, ...]:
    """Return the caches of Nemotron H: of its layers only those of attention and Mamba 2 have one."""
    letters = config.items("hybrid_override_pattern") or tuple(
        _NEMOTRON.get(kind, "-") for kind in (config.items("layers_block_type") or config.items("layer_types"))
    )
    if not letters:
        raise ModelConfigError("config.json lacks `hybrid_override_pattern`, which decides the model's memory.")
    found = []
    for letter in letters:
        if letter == "*":
            found.append(attention(config))
        elif letter == "M":
            found.append(
                _scan(
                    config,
                    heads=config.positive("mamba_num_heads"),
                    width=config.positive("mamba_head_dim"),
                    state=config.positive("ssm_state_size"),
                    groups=config.positive("n_groups"),
                    kernel=config.positive("conv_kernel"),
                )
            )
    return tuple(found)


def kimi_linear(config: ConfigReader) -> tuple[LayerCache, ...]:
    linear = config.within("linear_attn_config")
    heads, width = linear.positive("num_heads"), linear.positive("head_dim")
    kernel = linear.positive("short_conv_kernel_size", default=4)
    state = recurrent(3 * (kernel - 1) * heads * width, heads * width * width)
    at = linear.items("kda_layers")  # counted from one
    return tuple(state if place + 1 in at else compressed(config) for place in range(config.layers))


def rwkv7(config: ConfigReader) -> tuple[LayerCache, ...]:
    width, head = config.positive("hidden_size"), config.positive("head_dim")
    return (recurrent(2 * width + width * head),) * config.layers


def griffin(config: ConfigReader) -> tuple[LayerCache, ...]:
    """Return the caches of RecurrentGemma: one head of a window, and states of one number for each channel."""
    kinds = config.items("block_types") or config.items("_block_types")
    if not kinds:
        raise ModelConfigError("config.json lacks `block_types`, which decides the model's memory.")
    width = config.positive("hidden_size")
    window = sliding(split_width(config), split_width(config), config.positive("attention_window_size"))
    state = recurrent(config.positive("conv1d_width") * width)
    return tuple(state if kinds[place % len(kinds)] == "recurrent" else window for place in range(config.layers))


__all__ = [
    "delta_net", "falcon_h1", "gated_short", "granite_hybrid", "griffin", "jamba", "kimi_linear", "mamba", "mamba2",
    "nemotron_h", "rwkv7",
]  # fmt: skip
