"""Hyper-parameters of a tiny model for every architecture, after llama.cpp's `tests/test-llama-archs.cpp` (b11434).

`metadata` follows that file's `get_gguf_ctx` key by key. UPSTREAM has that file's own numbers. WIDE has the same keys
with more layers, several heads and a longer window, so that the logs' 0.01 MiB tell layers, heads and windows apart.
Numbered sizes are drawn at random, by a seed (`draw`), so that no rule of the estimate can fit one shape only. Where
another size than UPSTREAM cannot keep that one's value, the line says so; they are the wide ones here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tests.evidence import draw

Metadata: TypeAlias = dict[str, "bool | int | float | str | list[int] | list[float] | list[str] | Wide"]


@dataclass(frozen=True)
class Wide:
    """An array of u64, where llama.cpp reads nothing else."""

    items: tuple[int, ...]


@dataclass(frozen=True)
class Size:
    """The dimensions of a fixture.

    `period` is the distance of attention layers in hybrids and of full ones in SWA; the last `nextn` layers predict
    further tokens; `head` is the size of a head where it is not the embedding's share.
    """

    name: str
    layers: int
    embedding: int
    heads: int
    kv_heads: int
    feed_forward: int
    context: int
    window: int
    vocabulary: int
    period: int
    nextn: int = 0
    head: int = 0

    @property
    def head_size(self) -> int:
        return self.head or self.embedding // self.heads

    @property
    def wide(self) -> bool:
        return self.name != "upstream"


UPSTREAM = Size("upstream", 2, 256, 2, 2, 384, 256, 32, 128, 2)
WIDE = Size("wide", 8, 512, 8, 4, 768, 32768, 512, 4096, 4)
SIZES = {size.name: size for size in (UPSTREAM, WIDE)}
DRAWN = ("1", "2", "3")
"""Names of the sizes that are drawn, of every fixture."""

MLA = frozenset(
    {"deepseek2", "deepseek32", "glm-dsa", "dots3note", "kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next", "hy_v4"}
    | {"mistral4"}
)
HYBRID_BY_HEADS = frozenset(
    {"plamo2", "jamba", "nemotron_h", "nemotron_h_moe", "granitehybrid", "lfm2", "lfm2moe", "kimi-linear"}
    | {"bailingmoe3", "kimi-k3", "glm5-next"}
)
SWA_ARRAY = frozenset({
    "cohere2moe",
    "mimo2",
    "step35",
    "spark2_5",
    "muse-glimmer",
    "granite_swa",
    "dots3note",
    "maple",
})
UNGROUPED = frozenset({
    "minicpm3",
    "olmoe",
    "deepseek2-ocr",
    "t5",
    "t5encoder",
    "plm",
    "rwkv6",
    "dots1",
    "jina-bert-v2",
})
"""Their graphs want as many KV heads as heads."""
DELTA_NET = frozenset({"qwen3next", "qwen35", "qwen35moe", "qwen4exp"})
EXPERTS_ONLY = frozenset(
    {"llama4", "cohere2moe", "grok", "qwen2moe", "qwen3moe", "qwen3next", "qwen3vlmoe", "qwen35moe", "qwen4exp"}
    | {"phimoe", "dbrx", "olmoe", "arctic", "deepseek", "deepseek2", "deepseek32", "dots3note", "deepseek4", "glm4moe"}
    | {"glm-dsa", "exaone-moe", "bailingmoe", "bailingmoe2", "bailingmoe3", "dots1", "afmoe", "ernie4_5"}
    | {"ernie4_5-moe", "hunyuan-moe", "hy_v3", "hy_v4", "gpt-oss", "lfm2moe", "smallthinker", "llada-moe", "grovemoe"}
    | {"minimax-01", "minimax-m2", "minimax-m3", "rnd1", "paddleocr", "mimo2", "kimi-linear", "kimi-k3", "glm5-next"}
    | {"step35", "mistral4", "mellum", "laguna", "maple"}
    # not in upstream's list, which skips them or builds them without experts
    | {"deepseek2-ocr", "nomic-bert-moe", "nemotron_h_moe"}
)
EXPERTS_TOO = frozenset({"llama", "refact", "minicpm", "granite", "granitemoe", "mistral3", "llama-embed"})
NEXTN = frozenset(
    {"bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe", "glm5-next", "hy_v3"}
    | {"mimo2", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "qwen4exp", "step35"}
)
"""They have tensors of blocks that predict further tokens; upstream's fixtures have none."""


@dataclass(frozen=True)
class Fixture:
    """One tiny model: an architecture, with or without experts, in a size."""

    architecture: str
    experts: bool
    size: Size
    nextn: bool = False
    """With one more block, which predicts a further token."""

    @property
    def name(self) -> str:
        return f"{self.architecture}{'+experts' * self.experts}{'+nextn' * self.nextn}/{self.size.name}"


def fixtures_of(architecture: str) -> Iterator[Fixture]:
    """As upstream: dense unless it is always a mixture of experts; both where both exist."""
    drawn = () if architecture in draw.NOT_DRAWN else DRAWN
    for size in (*SIZES, *drawn):
        if architecture not in EXPERTS_ONLY:
            yield fixture(f"{architecture}/{size}")
        if architecture in EXPERTS_ONLY | EXPERTS_TOO:
            yield fixture(f"{architecture}+experts/{size}")
    if architecture in NEXTN:
        for size in (WIDE.name, *(() if architecture in draw.NO_NEXTN else DRAWN[:1])):
            yield fixture(f"{architecture}{'+experts' * (architecture in EXPERTS_ONLY)}+nextn/{size}")


def fixture(name: str) -> Fixture:
    """The fixture of that name."""
    kind, _, size = name.partition("/")
    architecture, *parts = kind.split("+")
    found = SIZES.get(size) or draw.size_of(name, size)
    return Fixture(architecture, "experts" in parts, found, "nextn" in parts)


def dimensions(architecture: str, size: Size) -> Size:
    """The size, with what this architecture needs otherwise; every branch is upstream's unless it says wide."""
    wide = size.wide
    special: dict[str, dict[str, Any]] = {
        "llama4": {"layers": 8 if wide else 4},
        "gemma3n": {"layers": 22} if wide else {"layers": 22, "embedding": 64, "heads": 1, "feed_forward": 96},
        "gemma4": {} if wide else {"layers": 5, "embedding": 128, "heads": 2, "feed_forward": 192},
        "deepseek4": {"layers": 8 if wide else 4, "embedding": 512, "heads": 8, "feed_forward": 1024},
        "nemotron_h": {"layers": 9 if wide else 3},
        "nemotron_h_moe": {"layers": 9 if wide else 3},
        "qwen3tts": {"vocabulary": 4096 if wide else 3072},
        "chameleon": {"vocabulary": 10240},
        "hrm_text": {"layers": 6},
        "exaone4": {"layers": 64 if wide else 2},  # wide: its window counts in a model of 64 layers only
    }
    if size.name in DRAWN:
        special = {
            "llama4": {"layers": max(size.layers, 4)},
            "gemma3n": {"layers": 18 + size.layers},  # the first 20 own a cache
            "deepseek4": {"layers": max(size.layers, 4)},
            "nemotron_h": {"layers": 3 * (1 + size.layers // 3)},
            "nemotron_h_moe": {"layers": 3 * (1 + size.layers // 3)},
            "qwen3tts": {"vocabulary": max(size.vocabulary, 3072)},
            "chameleon": {"vocabulary": 10240},
            "hrm_text": {"layers": 6},
            "exaone4": {"layers": 64 if size.layers % 2 else size.layers},
        }
    found = replace(size, **special.get(architecture, {}))
    if not wide:
        if architecture in {"step35", "laguna"}:
            found = replace(found, embedding=160)
        if architecture in {"qwen3", "muse-glimmer", "afmoe"}:
            found = replace(found, heads=4)
        if architecture in MLA:
            found = replace(found, embedding=128, heads=1, feed_forward=192)
        kv_heads = {"qwen3": 1, "muse-glimmer": 2, "afmoe": 2}.get(architecture, found.heads)
        return replace(found, kv_heads=kv_heads)
    if architecture in MLA:
        return replace(found, kv_heads=1)
    return replace(found, kv_heads=found.heads) if architecture in UNGROUPED else found


def metadata(subject: Fixture) -> Metadata:
    """Every key of upstream's fixture, with the architecture's prefix; keys an architecture does not read stay in."""
    architecture, size = subject.architecture, dimensions(subject.architecture, subject.size)
    keys: Metadata = {}
    if subject.nextn:
        size = replace(size, layers=size.layers + 1, nextn=1)
    keys |= _general(size)
    keys |= _attention(architecture, size)
    keys |= _latent(architecture, size)
    keys |= _window(architecture, size)
    keys |= _sparse(architecture, size)
    keys |= _experts(architecture, size) if subject.experts else {}
    keys |= _recurrent(architecture, size)
    keys |= _beyond_upstream(architecture)
    if size.name in DRAWN:
        keys |= draw.varied(subject.name, architecture, size, keys)
    if subject.nextn:
        keys["nextn_predict_layers"] = 1
        if architecture == "glm4moe":  # with sections it takes itself for the one that sees, which predicts nothing
            del keys["rope.dimension_sections"]
    found: Metadata = {"general.architecture": architecture}
    found |= {f"{architecture}.{key}": value for key, value in keys.items()}
    found |= _tokenizer(size) | {f"xielu.{key}": value for key, value in (("alpha_n", 1.0), ("alpha_p", 1.0))}
    return found | {"xielu.beta": 1.0, "xielu.eps": 1e-7}


def _general(size: Size) -> Metadata:
    return {
        "vocab_size": size.vocabulary,
        "context_length": size.context,
        "embedding_length": size.embedding,
        "features_length": size.embedding,
        "block_count": size.layers,
        "leading_dense_block_count": 1,
        "use_parallel_residual": False,
        "logit_scale": 1.0,
        "time_mix_extra_dim": 64,
        "time_decay_extra_dim": 128,
        "full_attention_interval": size.period,
        "posnet.embedding_length": size.embedding,
        "posnet.block_count": size.layers,
        "convnext.embedding_length": size.embedding,
        "convnext.block_count": size.layers,
        "residual_scale": 3.5565588200778455,
        "attn_res.block_size": 12,
        "activation.situ_beta": 4.0,
        "activation.situ_linear_beta": 25.0,
    }


def _is_attention(layer: int, size: Size) -> bool:
    """In hybrids: upstream has one recurrent layer, wide ones one attention layer in `period`; NextN blocks attend."""
    if not size.wide:
        return layer != 1
    return layer % size.period == size.period - 1 or layer >= size.layers - size.nextn


def _attention(architecture: str, size: Size) -> Metadata:
    layers = range(size.layers)
    keys: Metadata = {"feed_forward_length": size.feed_forward}
    heads: int | list[int] = size.heads
    kv_heads: int | list[int] = 1 if architecture == "deepseek4" else size.kv_heads
    if architecture in HYBRID_BY_HEADS:
        heads = [size.heads if _is_attention(layer, size) else 0 for layer in layers]
        kv_heads = [size.kv_heads if _is_attention(layer, size) else 0 for layer in layers]
        if size.wide or architecture == "glm5-next":
            heads = size.heads  # files have it whole: the KDA and Mamba layers count heads, too
    if architecture in {"nemotron_h", "nemotron_h_moe"}:
        if size.wide:  # Mamba, attention and feed-forward layers in turn; a NextN block has both latter
            trunk = size.layers - size.nextn
            kv_heads = [size.kv_heads if layer % 3 == 1 or layer >= trunk else 0 for layer in layers]
            wide = [size.feed_forward if layer % 3 == 2 or layer >= trunk else 0 for layer in layers]
            keys["feed_forward_length"] = wide
        else:
            keys["feed_forward_length"] = [0 if layer <= 1 else size.feed_forward for layer in layers]
    return keys | {
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.max_alibi_bias": 8.0,
        "attention.clamp_kqv": 1.0,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.group_norm_epsilon": 1e-5,
        "attention.group_norm_groups": 8,
        "attention.relative_buckets_count": 8,
    }


def _latent(architecture: str, size: Size) -> Metadata:
    head = size.embedding // size.heads
    keys: Metadata = {
        "attention.q_lora_rank": 64 if architecture == "deepseek4" else 512,
        "attention.kv_lora_rank": 512,
    }
    if architecture == "deepseek4":
        keys |= {"attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head // 2}
    elif architecture in MLA:
        ropeless = architecture == "glm5-next"
        keys |= {
            "attention.key_length": 512 if ropeless else 576,
            "attention.value_length": 512,
            "rope.dimension_count": 0 if ropeless else 64,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
        }
    elif architecture == "minimax-m3":
        keys["rope.dimension_count"] = 64
    if architecture == "dots3note":
        keys |= {
            "attention.kv_lora_rank_swa": 512,
            "attention.key_length_swa": 576,
            "attention.value_length_swa": 512,
            "attention.key_length_mla_swa": 192,
            "attention.value_length_mla_swa": 128,
            "rope.freq_base_swa": 10000.0,
        }
    return keys


def _window(architecture: str, size: Size) -> Metadata:
    layers = range(size.layers)
    wide = size.wide
    keys: Metadata = {"attention.sliding_window": size.window}
    if architecture == "gemma4":
        head = size.embedding // size.heads
        keys |= {
            "embedding_length_per_layer_input": size.embedding // 2,
            "attention.shared_kv_layers": size.layers - 4 * max(1, size.layers // 8) if wide else 0,
            "attention.key_length_swa": head,
            "attention.value_length_swa": head,
            "rope.freq_base_swa": 10000.0,
            # upstream's scalar is refused: converted files carry an array, every 5th layer (wide: 4th) looks at all
            "attention.sliding_window_pattern": [int((layer + 1) % (4 if wide else 5) != 0) for layer in layers],
        }
    elif architecture in SWA_ARRAY:
        pattern = [int((layer + 1) % 4 != 0) if wide else layer % 2 for layer in layers]
        keys["attention.sliding_window_pattern"] = pattern
    elif not wide:  # wide ones leave the architectures' own periods in force, as most converted files do
        keys["attention.sliding_window_pattern"] = 2
    return keys


def _owners(architecture: str, size: Size) -> list[int]:
    """Which layers own an indexer: in dots3note those without a window, else every other one, from the first on."""
    if architecture == "dots3note" and size.wide:
        return [int((layer + 1) % 4 == 0) for layer in range(size.layers)]
    return [0 if layer % 2 else 1 for layer in range(size.layers)]


def _sparse(architecture: str, size: Size) -> Metadata:
    head = size.head_size
    trunk = size.layers - size.nextn
    keys: Metadata = {
        "attention.indexer.head_count": size.heads if architecture == "minimax-m3" else 64,
        "attention.indexer.key_length": head if architecture == "qwen4exp" else 128,
        "attention.indexer.top_k": 131072,
        "attention.indexer.block_size": 4,
        "attention.indexer.kpool": 4,
        "attention.indexer.kpool_select_tail": True,
        "attention.indexer.local_blocks": 1,
        "rope.dimension_sections": [8, 12, 12, 0] if architecture == "bailingmoe3" else [head // 4] * 4,
    }
    if architecture == "minimax-m3" and size.wide:
        keys["attention.indexer.head_count"] = size.kv_heads  # one per KV head, of which upstream has as many as heads
    if architecture in {"dots3note", "hy_v4"}:
        keys["attention.indexer.types"] = _owners(architecture, size)
    if architecture in {"qwen4exp", "glm5-next"}:
        keys |= _hyper_connections(size)
    if architecture == "hy_v4":
        keys |= {
            "hyper_connection.count": 4,
            "hyper_connection.epsilon": 1e-6,
            "hyper_connection.magnitude": 2.0,
            "swiglu_clamp_exp": 10.0,
            "expert_weights_scale": 1.0,
            "expert_weights_norm": True,
        }
    if architecture == "deepseek4":
        keys |= {
            "attention.output_group_count": 8,
            "attention.output_lora_rank": 32,
            "attention.compress_ratios": [0, 0] + [4, 128] * (trunk // 2 - 1) + [0] * (trunk % 2 + size.nextn),
            "attention.compress_rope_freq_base": 160000.0,
            "hyper_connection.count": 4,
            "hyper_connection.sinkhorn_iterations": 2,
            "hyper_connection.epsilon": 1e-6,
            "hash_layer_count": 0,
            "swiglu_clamp_exp": 10.0,
            "expert_weights_scale": 1.0,
            "expert_weights_norm": True,
        }
    if architecture == "hrm_text":
        keys |= {"hrm.layers_per_stack": 1, "hrm.h_cycles": 2, "hrm.l_cycles": 2}
    if architecture == "maple":
        keys["swiglu_clamp_exp"] = 7.0
    return keys


def _hyper_connections(size: Size) -> Metadata:
    ngram, heads_per_ngram = 3, 2
    heads = (ngram - 1) * heads_per_ngram
    return {
        "hyper_connection.count": 4,
        "hyper_connection.sinkhorn_iterations": 2,
        "hyper_connection.epsilon": 1e-6,
        "hyper_connection.low_rank": 8,
        "attention.compress_ratios": [4] * size.layers,
        "ple.layers": [0],
        "ple.ngram_size": ngram,
        "ple.heads_per_ngram": heads_per_ngram,
        "ple.conv_kernel": 4,
        "ple.eos_token_id": 0,
        "embedding_length_per_layer_input": size.embedding // heads,
        "ple.layer_multipliers": Wide((1, 3, 5)),
        "ple.head_offsets": Wide(tuple(head * size.vocabulary for head in range(heads))),
        "ple.head_vocab_sizes": Wide((size.vocabulary,) * heads),
    }


def _experts(architecture: str, size: Size) -> Metadata:
    return {
        "expert_feed_forward_length": size.feed_forward,
        "expert_shared_feed_forward_length": size.feed_forward // 2,
        "expert_latent_length": size.feed_forward,
        "interleave_moe_layer_step": 2,
        "expert_count": 8 if size.wide else 2,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_gating_func": 4 if architecture == "deepseek4" else 2,
        "expert_group_scale": 1.0,
        "experts_per_group": 1,
    }


def _recurrent(architecture: str, size: Size) -> Metadata:
    keys: Metadata = {
        # upstream's 256 is two heads of 128
        "ssm.inner_size": 128 * size.heads if architecture in DELTA_NET else 2 * size.embedding,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.time_step_rank": size.heads,
        "ssm.group_count": 0 if architecture == "plamo2" else 2,
        "kda.head_dim": 128,
        "kda.gate_lower_bound": -5.0,
        "wkv.head_size": size.embedding // size.heads,
        "shortconv.l_cache": 3,
    }
    if architecture == "bailingmoe3":
        last = 4.0, 5.0
        keys |= {
            key: [0.0] * (size.layers - 1) + [value]
            for key, value in zip(("swiglu_clamp_exp", "swiglu_clamp_shexp"), last, strict=True)
        }
    else:
        keys["kda.safe_gate"] = True
    return keys


def _beyond_upstream(architecture: str) -> Metadata:
    """Keys of architectures that upstream's file skips."""
    if architecture in {"rwkv7", "arwkv7"}:
        ranks = {"decay": 64, "iclr": 64, "value_residual_mix": 32, "gate": 128}
        keys: Metadata = {f"attention.{name}_lora_rank": rank for name, rank in ranks.items()}
        return keys | ({"token_shift_count": 1} if architecture == "arwkv7" else {})
    if architecture == "rwkv6qwen2":
        return {"token_shift_count": 1}
    if architecture == "plm":
        return {"attention.key_length": 192, "attention.value_length": 128, "rope.dimension_count": 64}
    if architecture == "graniteswitch":
        return {
            "adapters.count": 2,
            "adapters.lora_rank": 8,
            "adapters.token_ids_activate": [1, 2],
            "adapters.token_ids_substitute": [3, 4],
        }
    return {}


def _tokenizer(size: Size) -> Metadata:
    return {
        "tokenizer.ggml.model": "test",
        "tokenizer.ggml.token_type_count": 2,  # BERTs ask for it; upstream skips them
        "tokenizer.ggml.tokens": [f"tok_{token}" for token in range(size.vocabulary)],
        "tokenizer.ggml.scores": [0.0] * size.vocabulary,
    }
