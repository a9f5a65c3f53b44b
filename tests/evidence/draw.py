"""Dimensions of fixtures drawn at random: a rule of the estimate that holds for them holds for more than one shape.

The draw of a fixture depends on its name and the seed alone, so that it can be made again; another seed gives other
fixtures of the same names. Ranges are those in which llama.cpp builds the graphs; what an architecture cannot have is
named here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.evidence.architectures import Metadata, Size
    from tests.evidence.settings import Setting

SEED = os.environ.get("EVIDENCE_SEED", "2026")
"""Of the record; `EVIDENCE_SEED` draws others, to look for shapes that a rule does not fit."""

STARTS = 4
"""So many settings are drawn for every fixture."""

NOT_DRAWN = frozenset({
    *("clef", "clip", "dflash", "eagle3", "gemma4-assistant", "gptj", "wavtokenizer-dec"),
    *("plm", "rwkv6qwen2", "t5"),
})
"""llama.cpp does not build them from hyper-parameters, or not their graphs."""

NO_NEXTN = frozenset({"deepseek4"})  # divides by zero in most sizes

EIGHTS = frozenset({"deepseek4"})
EVEN_HEADS = frozenset({
    *("mpt", "refact", "bloom", "jais", "jais2", "baichuan"),
    *("mamba2", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe"),
})
WIDE_HEADS = frozenset({"minimax-m3"})
OWN_HEADS = frozenset({
    *("llama", "mistral3", "llama4", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "gpt-oss", "glm4", "glm4moe"),
    *("qwen3next", "qwen35", "qwen35moe", "granite", "granitemoe", "hunyuan-dense", "hunyuan-moe", "seed_oss"),
    *("ernie4_5", "ernie4_5-moe", "smollm3", "deci", "minimax-m2"),
})
"""Their heads need not share out the embedding."""


def size_of(subject: str, number: str) -> Size:
    """The size of that number, of a fixture."""
    from tests.evidence.architectures import Size  # noqa: PLC0415 - that module names this one's sizes

    draw = _random(subject, "size")
    architecture = subject.partition("/")[0].partition("+")[0]
    heads = draw.choice((2, 3, 4, 5, 6, 8, 10, 12, 16))
    if architecture in EIGHTS:
        heads = draw.choice((8, 16))
    elif architecture in EVEN_HEADS:
        heads = draw.choice((2, 4, 8, 16))
    least = 64 if architecture in WIDE_HEADS else 32
    head = draw.choice([size for size in (32, 64, 96, 128) if size >= least and 128 <= size * heads <= 1024])
    shared = draw.choice([number for number in range(1, heads + 1) if heads % number == 0])
    embedding = heads * head
    wide = draw.random() < 0.5 and architecture in OWN_HEADS
    return Size(
        name=number,
        layers=draw.randint(4, 9),
        embedding=embedding,
        heads=heads,
        kv_heads=shared,
        feed_forward=_rounded(embedding * draw.uniform(0.4, 5), 64),
        context=32768,
        window=draw.choice((128, 256, 512, 1000, 1536)),
        vocabulary=_rounded(2 ** draw.uniform(7, 14), 32),
        period=draw.choice((2, 3, 4)),
        head=draw.choice((32, 64, 96, 128, 192, 256)) if wide else 0,
    )


def settings_of(subject: str, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Some of them, in their order."""
    chosen = _random(subject, "settings").sample(range(len(settings)), STARTS)
    return tuple(settings[number] for number in sorted(chosen))


def varied(subject: str, architecture: str, size: Size, keys: Metadata) -> Metadata:
    """Other values of those keys that the size does not decide."""
    draw = _random(subject, "keys")
    found: Metadata = {}
    if size.head:
        found |= {"attention.key_length": size.head, "attention.value_length": size.head}
        found["rope.dimension_count"] = size.head
    for vary in (_experts, _states, _latent, _indexer):
        found |= vary(architecture, size, draw)
    return {key: value for key, value in found.items() if key in keys or key in _NEW}


_NEW = frozenset({"attention.key_length", "attention.value_length", "rope.dimension_count"})


def _experts(architecture: str, size: Size, draw: Random) -> Metadata:
    width = _rounded(size.embedding * draw.uniform(0.2, 2), 32)
    found: Metadata = {
        "expert_count": draw.choice((4, 6, 8, 12)),
        "expert_used_count": draw.randint(1, 4),
        "expert_feed_forward_length": width,
        "expert_shared_feed_forward_length": _rounded(size.embedding * draw.uniform(0.2, 3), 32),
        "expert_shared_count": draw.choice((1, 2)),
    }
    return found


def _states(architecture: str, size: Size, draw: Random) -> Metadata:
    from tests.evidence.architectures import DELTA_NET  # noqa: PLC0415 - as above

    found: Metadata = {
        "kda.head_dim": draw.choice((64, 128)),
        "shortconv.l_cache": draw.choice((3, 4)),
        "ssm.conv_kernel": draw.choice((3, 4)),
        "ssm.state_size": draw.choice((16, 64, 128)),
    }
    if architecture in DELTA_NET:
        state, keys = draw.choice((64, 128)), draw.choice((1, 2, 4))
        values = keys * draw.choice((1, 2, 3))
        found |= {"ssm.state_size": state, "ssm.inner_size": state * values}
        found |= {"ssm.group_count": keys, "ssm.time_step_rank": values}
    return found


def _latent(architecture: str, size: Size, draw: Random) -> Metadata:
    from tests.evidence.architectures import MLA  # noqa: PLC0415 - as above

    if architecture not in MLA:
        return {}
    rope = 0 if architecture == "glm5-next" else 64
    latent, inner, value = draw.choice((128, 256, 512)), draw.choice((64, 128)), draw.choice((64, 128))
    found: Metadata = {
        "attention.q_lora_rank": draw.choice((128, 256, 512, 768)),
        "attention.kv_lora_rank": latent,
        "attention.key_length": latent + rope,
        "attention.value_length": latent,
        "attention.key_length_mla": inner + rope if rope else inner + 64,
        "attention.value_length_mla": value,
    }
    if architecture == "dots3note":
        found |= {f"{key}_swa": value for key, value in found.items() if key != "attention.q_lora_rank"}
    return found


def _indexer(architecture: str, size: Size, draw: Random) -> Metadata:
    found: Metadata = {"attention.indexer.top_k": draw.choice((64, 256, 1024, 2048, 131072))}
    if architecture not in {"minimax-m3"}:
        found["attention.indexer.head_count"] = draw.choice((4, 8, 16, 32, 64))
    if architecture in {"minimax-m3", "qwen4exp", "glm5-next"}:
        found["attention.indexer.block_size"] = draw.choice((4, 16, 64, 128))
        found["attention.indexer.top_k"] = draw.choice((4, 16, 64, 2048))
    return found


def _random(subject: str, what: str) -> Random:
    return Random(f"{SEED} {subject} {what}")


def _rounded(size: float, step: int) -> int:
    return max(step, round(size / step) * step)
