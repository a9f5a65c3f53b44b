"""Caches and states of every layout, as llama.cpp b11434 logged them (MiB, to the log's 0.01).

The fixtures are 512 wide: 8 heads, 4 of keys and values, 64 each (latent keys: 576), 8 layers unless said, a window of
512. `groups` reads as the log does: cells × layers, × streams where there are several.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from supervisor.core.memory.context import resolve_context
from supervisor.core.memory.facts import facts_of
from supervisor.core.spec import ModelSpec, read_spec
from tests.core.memory.support import MIB, estimated, header_of, k_bytes, spec_of, v_bytes
from tests.evidence.architectures import Metadata
from tests.evidence.compare import options_of
from tests.evidence.settings import EVERY, Setting
from tests.evidence.subjects import metadata_of, tensors_of


class Case(NamedTuple):
    subject: str
    flags: str
    k: float
    v: float
    state: float = 0.0
    groups: str = ""


AUTO, NP1, NP3, KVU, Q8 = (EVERY[name].flags for name in ("auto", "np1", "np3", "kvu", "q8"))
Q4, SWA_FULL, UB256 = (EVERY[name].flags for name in ("q4", "swafull", "ub256"))

CASES = [
    Case("llama/wide", NP3, 21.0, 21.0, 0, "1792×8×3"),
    Case("llama/wide", Q4, 3.375, 3.75, 0, "3072×8"),
    Case("qwen3/wide", Q8, 8.5, 8.5, 0, "2048×8×2"),
    Case("gemma3/wide", AUTO, 10.75, 10.75, 0, "4096×1 2560×7"),
    Case("gemma3/wide", SWA_FULL, 16.0, 16.0, 0, "2048×1×2 2048×7×2"),
    Case("gpt-oss+experts/wide", NP3, 16.5, 16.5, 0, "1792×4×3 1024×4×3"),
    Case("cohere2/wide", UB256, 7.75, 7.75, 0, "4096×2 1280×6"),
    Case("llama4+experts/wide", "-c 65536", 161.5, 161.5, 0, "65536×2 33280×6"),
    Case("gemma3n/wide", NP3, 34.5, 34.5, 0, "1792×4×3 1024×16×3"),
    Case("gemma4/wide", NP3, 7.125, 7.125, 0, "1792×1×3 1024×3×3"),
    Case("exaone4/wide", NP1, 56.0, 56.0, 0, "4096×16 1024×48"),
    Case("deepseek2+experts/wide", NP3, 47.25, 0, 0, "1792×8×3"),
    Case("deepseek2+experts/wide", Q8, 19.125, 0, 0, "2048×8×2"),
    Case("deepseek32+experts/wide", KVU, 88.0, 0, 0, "8192×8 8192×8"),
    Case("glm-dsa+experts/wide", NP3, 57.75, 0, 0, "1792×8×3 1792×8×3"),
    Case("qwen3next+experts/wide", AUTO, 4.0, 4.0, 12.422, "4096×2"),
    Case("qwen4exp+experts/wide", NP3, 7.875, 5.25, 9.527, "1792×2×3 1792×2×3"),
    Case("glm5-next+experts/wide", NP3, 18.375, 0, 9.633, "1792×2×3 1792×2×3"),
    Case("kimi-linear+experts/wide", NP3, 11.8125, 0, 9.633, "1792×2×3"),
    Case("minimax-01+experts/wide", NP3, 5.25, 5.25, 2.25, "1792×2×3"),
    Case("jamba/wide", NP3, 5.25, 5.25, 9.211, "1792×2×3"),
    Case("granitehybrid/wide", AUTO, 4.0, 4.0, 12.422, "4096×2"),
    Case("falcon-h1/wide", NP3, 21.0, 21.0, 12.422, "1792×8×3"),
    Case("lfm2/wide", AUTO, 2.5, 2.5, 0.094, "2560×2"),
    Case("mamba/wide", AUTO, 0, 0, 16.375),
    Case("mamba2/wide", NP3, 0, 0, 12.422),
    Case("rwkv6/wide", AUTO, 0, 0, 4.125),
    Case("rwkv7/wide", NP3, 0, 0, 3.094),
    Case("phi3/wide", NP3, 21.0, 21.0, 0, "1792×8×3"),
    Case("bert/wide", NP1, 0, 0),
    Case("dream/wide", NP1, 0, 0),
    Case("llama/wide", "-c 1", 1.0, 1.0, 0, "256×8"),
    Case("llama/wide", "-c 4097 -np 3", 18.0, 18.0, 0, "1536×8×3"),
    Case("llama/wide", "-c 1000 -np 8", 8.0, 8.0, 0, "256×8×8"),
    Case("llama/wide", "", 128.0, 128.0, 0, "32768×8"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.subject} {case.flags}")
def test_a_fixture_gets_what_the_engine_logged(case: Case) -> None:
    check(spec_of(case.subject), case)


def check(spec: ModelSpec, case: Case) -> None:
    options = options_of(Setting("asked", case.flags))
    context, facts = resolve_context(spec, options), facts_of(spec)
    caches = [rule.allocate(context, options.cache_type_k, options.cache_type_v) for rule in facts.caches]
    groups = [f"{c.cells}×{len(c.layers)}" + (f"×{c.streams}" if c.streams > 1 else "") for c in caches]
    assert " ".join(groups) == case.groups
    assert sum(map(k_bytes, caches)) / MIB == pytest.approx(case.k, abs=0.0006)
    assert sum(map(v_bytes, caches)) / MIB == pytest.approx(case.v, abs=0.0006)
    assert sum(facts.states) * context.states / MIB == pytest.approx(case.state, abs=0.0006)


def changed(subject: str, **keys: object) -> ModelSpec:
    """The fixture with other values for keys of its architecture; dots in their names are double underscores."""
    metadata: Metadata = dict(metadata_of(subject))
    architecture = str(metadata["general.architecture"])
    for name, value in keys.items():
        metadata[f"{architecture}.{name.replace('__', '.')}"] = value  # type: ignore[assignment] # as the tests below give them
    return read_spec(header_of(metadata, tensors_of(subject)))


HEADS = [4, 2, 2, 1, 4, 8, 2, 4]
RATIOS = [0, 0, 4, 128, 4, 128, 0, 0]
VARIED = [
    (changed("llama4+experts/wide", attention__sliding_window=0), Case("no window", "-c 16384", 64, 64, 0, "16384×8")),
    (
        changed("smallthinker+experts/wide", attention__sliding_window=1000),
        Case("a window of its own", "-c 16384 -np 1", 29.5, 29.5, 0, "16384×2 4608×6"),
    ),
    (
        changed("openelm/wide", attention__head_count_kv=HEADS),
        Case("transposed values are as wide as the widest", "-c 4096 -np 2 -fa off", 13.5, 32.0, 0, "2048×8×2"),
    ),
    (
        changed("openelm/wide", attention__head_count_kv=HEADS),
        Case("layers of their own widths", "-c 4096 -np 2", 13.5, 13.5, 0, "2048×8×2"),
    ),
    (
        changed("dots3note+experts/wide", attention__key_length_swa=320),
        Case("smaller latents in the window", AUTO, 20.375, 0, 0, "4096×2 2560×6 4096×2"),
    ),
    (
        changed("minimax-m3+experts/wide", attention__indexer__key_length=64),
        Case("index keys and values", NP3, 25.59375, 25.59375, 0, "1792×8×3 1792×7×3"),
    ),
    (
        changed("deepseek4+experts/wide", attention__compress_ratios=RATIOS),
        Case("all per slot", KVU, 5.125, 0, 0.34375, "1024×8×2 2048×2×2 256×2×2 2048×2×2"),
    ),
]


@pytest.mark.parametrize(("spec", "case"), VARIED)
def test_other_hyper_parameters(spec: ModelSpec, case: Case) -> None:
    check(spec, case)


KNOWN = [  # (model, flags, MiB of caches, MiB of states)
    ("llama-3.1-8b", "-c 8192 -np 1", 1024, 0),
    ("gemma-3-27b", "-c 32768 -np 1", 3184, 0),
    ("gemma-3-27b", "-c 32768", 4432, 0),
    ("gpt-oss-120b", "-c 32768 -np 1", 1179, 0),
    ("deepseek-v3", "-c 32768 -np 1", 2196, 0),
    ("kimi-k2", "-c 32768 -np 1", 2196, 0),
    ("glm-4.6", "-c 32768 -np 1", 11776, 0),
    ("qwen3-next-80b-a3b", "-c 32768 -np 1", 768, 75.38),
    ("qwen3-next-80b-a3b", "-c 32768", 768, 301.50),
    ("llama-4-scout", "-c 32768 -np 1", 2760, 0),
    ("llama-4-scout", "-c 32768", 6144, 0),
    ("qwen3.5-27b", "-c 32768 -np 1", 2048, 149.62),
    ("qwen3.5-27b", "-c 32768", 2048, 598.50),
    ("qwen3.5-397b-a17b", "-c 32768 -np 1", 960, 186.33),
    ("qwen3.5-397b-a17b", "-c 32768", 960, 745.31),
    ("mamba2-2.7b", "-c 32768 -np 1", 0, 163.94),
    ("mamba2-2.7b", "-c 32768", 0, 655.75),
    ("granite-4-h-small", "-c 32768 -np 1", 512, 147.48),
    ("granite-4-h-small", "-c 32768", 512, 589.92),
]


@pytest.mark.parametrize(("model", "flags", "caches", "states"), KNOWN)
def test_models_of_real_dimensions(model: str, flags: str, caches: float, states: float) -> None:
    found = estimated(spec_of(model), options_of(Setting("asked", flags, 1)))
    assert found.kv_bytes / MIB == caches
    assert found.recurrent_bytes / MIB == pytest.approx(states, abs=0.0051)


BUFFERS = [  # (model, MiB on the device), 8192 tokens in one slot
    *(("llama-3.1-8b", 124.01), ("llama-3.3-70b", 240.01), ("gemma-3-27b", 177.52), ("gpt-oss-120b", 98.77)),
    *(("deepseek-v3", 400.01), ("glm-4.6", 200.01), ("qwen3-235b-a22b", 176.01), ("qwen3-next-80b-a3b", 94.01)),
    *(("qwen3.5-27b", 150.02), ("qwen3.5-397b-a17b", 180.02), ("granite-4-h-small", 165.01), ("mamba2-2.7b", 74.22)),
]


@pytest.mark.parametrize(("model", "logged"), BUFFERS)
def test_compute_buffers_of_real_dimensions(model: str, logged: float) -> None:
    found = estimated(spec_of(model), options_of(Setting("asked", "-c 8192 -np 1", 1)))
    assert logged - 0.01 <= found.compute_bytes / MIB <= logged + 0.2


def test_a_model_without_flash_attention_and_on_several_devices() -> None:
    spec = spec_of("llama-3.1-8b")
    off = estimated(spec, options_of(Setting("asked", "-c 8192 -np 1 -fa off", 1)))
    assert 572 <= off.compute_bytes / MIB <= 600
    two = estimated(spec, options_of(Setting("asked", "-c 8192 -np 1 -ts 1,1", 2)))
    assert [round(device.compute_bytes / MIB) for device in two.devices] == [252, 212, 112]  # logged: 244, 204, 112


DRAFTS = [  # (fixture, flags, MiB of caches, MiB of states)
    ("qwen35+nextn/wide", "-c 4096 --spec-type draft-mtp", 12, 49.69),
    ("glm4moe+experts+nextn/wide", "-c 4096 -np 1", 32, 0),
    ("glm4moe+experts+nextn/wide", "-c 4096 -np 1 --spec-type draft-mtp", 36, 0),
]


@pytest.mark.parametrize(("subject", "flags", "caches", "states"), DRAFTS)
def test_drafting_adds_a_cache_and_copies_of_states(subject: str, flags: str, caches: float, states: float) -> None:
    found = estimated(spec_of(subject), options_of(Setting("asked", flags)))
    assert found.kv_bytes / MIB == caches
    assert found.recurrent_bytes / MIB == pytest.approx(states, abs=0.0051)
