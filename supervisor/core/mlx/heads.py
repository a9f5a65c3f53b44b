"""The numbers that attention keeps of a token: of heads as they are, compressed, or spread out again."""

from __future__ import annotations

from supervisor.core.mlx.caches import LayerCache, full, latent
from supervisor.core.mlx.config import ConfigReader


def kv_heads(config: ConfigReader) -> int:
    """Return the heads of keys and values; as many as of queries where the configuration does not say."""
    return config.positive(
        *("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_n_heads", "num_attention_groups"),
        *("num_attention_heads", "n_heads", "n_head", "num_heads"),
    )


def split_width(config: ConfigReader) -> int:
    """Return the numbers of a head that is its part of the layer's width."""
    width = config.positive("hidden_size", "d_model", "n_embd", "dim")
    return width // config.positive("num_attention_heads", "n_heads", "n_head", "num_heads")


def head_width(config: ConfigReader) -> int:
    """Return the numbers of a head."""
    return config.integer("head_dim") or split_width(config)


def attention(config: ConfigReader) -> LayerCache:
    """Return the cache of a layer of full attention."""
    width = kv_heads(config) * head_width(config)
    return full(width, width, head_width(config))


def split_attention(config: ConfigReader) -> LayerCache:
    """Return the same where `head_dim` does not count."""
    width = kv_heads(config) * split_width(config)
    return full(width, width, split_width(config))


def compressed(config: ConfigReader) -> LayerCache:
    """Return the cache of latent attention: what keys and values are made of, and the part that has a position."""
    return latent(config.positive("kv_lora_rank"), config.number("qk_rope_head_dim", default=0))


def expanded(config: ConfigReader, value_width: int) -> LayerCache:
    """Return the cache of latent attention that is kept spread out: all heads, keys and values of unequal width."""
    heads = config.positive("num_attention_heads")
    keys = config.positive("qk_nope_head_dim") + config.number("qk_rope_head_dim", default=0)
    return full(heads * keys, heads * value_width)
