"""The table of architectures against the list that llama.cpp knows."""

from __future__ import annotations

import re

import pytest

from supervisor.core.spec import ARCHITECTURES, Architecture, IndexerRule, KvRule, Layout, lookup
from supervisor.core.spec.architectures import ROWS as TABLE
from tests.support.llama_source import llama_source

# LLM_ARCH_NAMES of src/llama-arch.cpp, build b11434.
NAMES = """
    clip llama llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert modern-bert nomic-bert
    nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3
    qwen3moe qwen3next qwen3vl qwen3vlmoe qwen35 qwen35moe clef qwen4exp phi2 phi3 phimoe plamo plamo2 plamo3
    codeshell orion internlm2 minicpm minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma4-assistant gemma-embedding
    starcoder2 mamba mamba2 maple jamba falcon-h1 xverse command-r cohere2 cohere2moe dbrx olmo olmo2 olmoe
    muse-glimmer openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 chatglm glm4 glm4moe glm-dsa
    bitnet t5 t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe exaone exaone4 exaone-moe rwkv6 rwkv6qwen2
    rwkv7 arwkv7 granite granitemoe granitehybrid graniteswitch granite_swa chameleon wavtokenizer-dec plm
    bailingmoe bailingmoe2 bailingmoe3 dots1 dots3note arcee afmoe laguna ernie4_5 ernie4_5-moe hunyuan-moe
    hunyuan-dense hunyuan_vl hy_v3 hy_v4 smollm3 gpt-oss lfm2 lfm2moe dream smallthinker llada llada-moe seed_oss
    grovemoe apertus minimax-01 hrm_text minimax-m2 minimax-m3 cogvlm rnd1 pangu-embedded mistral3 eagle3 dflash
    mistral4 paddleocr mimo2 step35 spark2_5 llama-embed maincoder kimi-linear kimi-k3 glm5-next talkie mellum
    nanbeige qwen3tts pockettts
"""

# llm_arch_supports_rs_rollback of the same file.
ROLLBACK = """
    kimi-k3 qwen35 qwen35moe qwen4exp deepseek4 glm5-next nemotron_h nemotron_h_moe lfm2 lfm2moe bailingmoe3
"""

# llm_arch_is_hybrid of the same file.
HYBRID = """
    jamba falcon-h1 plamo2 granitehybrid lfm2 lfm2moe nemotron_h nemotron_h_moe qwen3next kimi-linear bailingmoe3
    kimi-k3 glm5-next qwen35 qwen35moe qwen4exp deepseek4 minimax-01
"""

ROWS = pytest.mark.parametrize("row", ARCHITECTURES.values(), ids=lambda row: row.name)


def test_every_architecture_has_one_row() -> None:
    assert len(NAMES.split()) == len(set(NAMES.split())), "a name stands twice in NAMES"
    assert sorted(row.name for row in TABLE) == sorted(NAMES.split()), "NAMES has the names of the source and no others"
    assert all(name == row.name for name, row in ARCHITECTURES.items())


def test_the_list_of_names_is_the_source_s() -> None:
    text = (llama_source() / "src" / "llama-arch.cpp").read_text(encoding="utf-8")
    found = re.findall(r'\{ LLM_ARCH_\w+,\s*"([^"]+)"\s*\}', text)
    assert [name for name in found if name != "(unknown)"] == NAMES.split(), "NAMES is this list, in its order"


def test_an_unknown_architecture_is_plain_and_says_so() -> None:
    row = lookup("llama-9")
    assert (row.name, row.known, row.layout) == ("llama-9", False, Layout.PLAIN)
    assert Architecture("llama-9", known=False) == row


def test_rollback_and_hybrids_are_llama_cpp_s() -> None:
    assert {name for name, row in ARCHITECTURES.items() if row.rollback} == set(ROLLBACK.split())
    remembering = {Layout.HYBRID, Layout.DEEPSEEK4}
    assert {name for name, row in ARCHITECTURES.items() if row.layout in remembering} == set(HYBRID.split())


@ROWS
def test_rows_are_consistent(row: Architecture) -> None:
    assert row.known
    assert (row.recurrent is None) == (row.recurrent_rule is None)
    assert (row.recurrent is not None) == (row.layout in {Layout.RECURRENT, Layout.HYBRID})
    assert row.mla or not row.mla_required
    assert not row.mla or row.layout in {Layout.MLA, Layout.DSA, Layout.HYBRID}
    assert (row.layout in {Layout.NONE, Layout.RECURRENT}) <= (row.kv is KvRule.NEVER)
    assert (row.layout is Layout.ISWA) <= (row.swa is not None)
    assert (row.layout in {Layout.DSA, Layout.MSA, Layout.DEEPSEEK4}) <= (row.indexer is not None)
    assert (row.indexer in {IndexerRule.COMPRESSED, IndexerRule.RATIO_POOLED}) == row.compress_ratios
    assert row.mtp or (row.nextn_graph and row.kept_nextn is None)
    assert row.recurrent is not None or (row.graph.late_rows, row.graph.scan_rows, row.graph.shift_rows) == (None,) * 3


def names_in(function: str, file: str) -> set[str]:
    """Architectures that a function of llama.cpp's source names before it first returns false."""
    source = llama_source() / "src"
    names = dict(re.findall(r'\{ (LLM_ARCH_\w+),\s*"([^"]+)"\s*\}', (source / "llama-arch.cpp").read_text("utf-8")))
    body = (source / file).read_text("utf-8").partition(f"{function}(")[2].partition("return false")[0]
    return {names[found] for found in re.findall(r"LLM_ARCH_\w+", body.partition("{")[2])}


def test_traits_are_the_source_s() -> None:
    rows = ARCHITECTURES.values()
    assert {row.name for row in rows if row.all_outputs} == names_in("llama_model_has_encoder", "llama-model.cpp")
    assert {row.name for row in rows if row.rollback} == names_in("llm_arch_supports_rs_rollback", "llama-arch.cpp")
    assert {row.name for row in rows if not row.flash_attention} == {"grok"}
