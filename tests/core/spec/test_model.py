"""Headers → facts per layer, architecture by architecture.

The expectations follow llama.cpp's source (`load_arch_hparams`, `create_memory`); layer counts of the small models are
those that the real server logged for models of the same shape.
"""

from __future__ import annotations

import io

import pytest

from supervisor.core.gguf import ArraySummary, GgufValue, read_header
from supervisor.core.spec import (
    ARCHITECTURES,
    ExpertSpec,
    IndexerSpec,
    KvRule,
    Layout,
    ModelSpec,
    PleSpec,
    RopeSpec,
    SsmSpec,
    read_spec,
)
from supervisor.errors import ModelFileError
from tests.support.headers import header, model
from tests.support.llama_source import llama_source

ALTERNATING = (4, 0) * 4  # KV heads of a hybrid


def spec(architecture: str, /, **keys: GgufValue | None) -> ModelSpec:
    """The facts of a small model; `__` in a key is a dot."""
    return read_spec(model(architecture, {name.replace("__", "."): value for name, value in keys.items()}))


def where(flags: tuple[bool, ...]) -> list[int]:
    return [layer for layer, flag in enumerate(flags) if flag]


LANGUAGE = [name for name, row in ARCHITECTURES.items() if not row.projector]


@pytest.mark.parametrize("name", LANGUAGE)
def test_every_architecture_can_be_read(name: str) -> None:
    found = spec(name)
    assert (found.architecture.name, found.vocab_only, found.modalities) == (name, False, ("text",))
    assert found.n_layer == found.n_layer_all - found.n_nextn
    per_layer = (found.n_head, found.n_head_kv, found.n_ff, found.swa_layers, found.recurrent_layers, found.kv_layers)
    assert {len(items) for items in (*per_layer, found.compress_ratios)} == {found.n_layer_all}
    assert (found.n_ctx_train, found.n_embd, found.n_vocab) == (32768, 512, 256)


def test_a_plain_model() -> None:
    found = spec("llama", rope__freq_base=500000.0, pooling_type=3)
    assert (found.n_layer_all, found.n_layer, found.n_nextn) == (8, 8, 0)
    assert (found.n_head, found.n_head_kv, found.n_ff) == ((8,) * 8, (4,) * 8, (1024,) * 8)
    assert (found.head_k, found.head_v, found.head_k_swa, found.head_v_swa) == (64, 64, 64, 64)
    assert where(found.kv_layers) == list(range(8))
    assert (where(found.swa_layers), where(found.recurrent_layers), found.window) == ([], [], 0)
    assert (found.mla, found.indexer, found.experts, found.ple, found.template) == (False, None, None, None, None)
    assert (found.causal, found.pooling, found.tied_embeddings) == (True, 3, False)
    assert found.rope == RopeSpec("none", 1.0, 32768, 500000.0)


# ── sliding windows ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("gemma2", [1, 3, 5, 7]),
        ("gemma3", [5]),
        ("gemma3n", [4]),
        ("gpt-oss", [1, 3, 5, 7]),
        ("cohere2", [3, 7]),
        ("cohere2moe", [0, 4]),
        ("llama4", [3, 7]),
        ("exaone-moe", [3, 7]),
        ("afmoe", [3, 7]),
        ("mellum", [3, 7]),
        ("olmo2", [3, 7]),
        ("laguna", [0, 4]),
        ("plamo3", [7]),
        ("smallthinker", [0, 4]),
        ("muse-glimmer", [3, 7]),
        ("modern-bert", [0, 3, 6]),
        ("gemma-embedding", [5]),
        ("deepseek4", []),
        ("lfm2", []),
        *((name, [1, 3, 5, 7]) for name in ("gemma4", "mimo2", "step35", "maple", "spark2_5", "granite_swa", "dflash")),
    ],
)
def test_layers_that_see_everything(name: str, full: list[int]) -> None:
    found = spec(name, hyper_connection__count=None if name == "dflash" else 4)
    assert [layer for layer in range(8) if not found.swa_layers[layer]] == full
    assert found.window == {"llama4": 8192, "smallthinker": 4096}.get(name, 512)


@pytest.mark.parametrize("name", ["phi3", "qwen2", "llama", "exaone4", "lfm2moe", "jamba"])
def test_a_window_that_is_ignored(name: str) -> None:
    found = spec(name)
    assert (where(found.swa_layers), found.window) == ([], 0)


def test_exaone4_has_a_window_with_64_layers_only() -> None:
    large = spec("exaone4", block_count=64)
    assert (len(where(large.swa_layers)), large.window) == (48, 512)
    assert spec("exaone4", block_count=64, attention__sliding_window=None).window == 4096
    assert where(spec("exaone4", block_count=30).swa_layers) == []


@pytest.mark.parametrize("window", [None, 0])
@pytest.mark.parametrize("name", ["gemma3", "afmoe", "mellum", "olmo2", "laguna", "plamo3", "smallthinker", "lfm2"])
def test_an_optional_window(name: str, window: int | None) -> None:
    found = spec(name, attention__sliding_window=window)
    assert (where(found.swa_layers), found.window) == ([], 0)


def test_windows_that_the_architecture_sets() -> None:
    assert spec("gemma2", attention__sliding_window=None).window == 4096
    assert spec("llama4", attention__sliding_window=None).window == 8192
    assert where(spec("llama4", attention__sliding_window=0).swa_layers) == []
    zero = spec("gpt-oss", attention__sliding_window=0)
    assert (zero.window, len(where(zero.swa_layers))) == (0, 4)


def test_a_pattern_of_the_file() -> None:
    assert where(spec("gemma3", attention__sliding_window_pattern=(1, 0, 0)).swa_layers) == [0]
    assert where(spec("gemma3", attention__sliding_window_pattern=(True,) * 12).swa_layers) == list(range(8))
    assert where(spec("gemma3", attention__sliding_window_pattern=2).swa_layers) == [0, 2, 4, 6]
    assert where(spec("gemma3", attention__sliding_window_pattern=0).swa_layers) == list(range(8))
    assert where(spec("gemma3", attention__sliding_window_pattern=1).swa_layers) == []
    assert where(spec("cohere2moe", attention__sliding_window_pattern=2).swa_layers) == [1, 3, 5, 7]


def test_nextn_blocks_have_no_window() -> None:
    assert where(spec("exaone-moe", nextn_predict_layers=2).swa_layers) == [0, 1, 2, 4, 5]
    assert where(spec("mimo2", nextn_predict_layers=2).swa_layers) == [0, 2, 4, 6]  # the file's list is copied


def test_head_sizes_under_a_window() -> None:
    found = spec("gemma4", attention__key_length=512, attention__value_length=256, attention__key_length_swa=128)
    assert (found.head_k, found.head_v, found.head_k_swa, found.head_v_swa) == (512, 256, 128, 256)


def test_a_draft_with_hyper_connections_has_a_window_everywhere() -> None:
    assert where(spec("dflash").swa_layers) == list(range(8))
    plain = spec("dflash", hyper_connection__count=None, attention__sliding_window=None)
    assert where(plain.swa_layers) == []


# ── who owns a cache ─────────────────────────────────────────────────────────────────────────────────────────────


def test_shared_caches() -> None:
    gemma3n = spec("gemma3n", block_count=22)
    assert where(gemma3n.kv_layers) == list(range(20))
    cached = [layer for layer in where(gemma3n.kv_layers) if not gemma3n.swa_layers[layer]]
    assert cached == [4, 9, 14, 19]
    assert where(spec("gemma4", attention__shared_kv_layers=4).kv_layers) == [0, 1, 2, 3]
    assert where(spec("gemma4", attention__shared_kv_layers=9).kv_layers) == []
    assert where(spec("gemma4-assistant").kv_layers) == []  # it reads its target's cache


@pytest.mark.parametrize("name", [name for name, row in ARCHITECTURES.items() if row.layout is Layout.NONE])
def test_no_cache_at_all(name: str) -> None:
    assert where(read_spec(model(name)).kv_layers) == []


def test_nextn_blocks_own_no_cache() -> None:
    found = spec("glm4moe", block_count=9, nextn_predict_layers=1)
    assert (found.n_layer_all, found.n_layer, found.n_nextn) == (9, 8, 1)
    assert where(found.kv_layers) == list(range(8))
    assert where(spec("deepseek2", nextn_predict_layers=1).kv_layers) == list(range(7))
    assert where(spec("deepseek32", nextn_predict_layers=1).kv_layers) == list(range(7))


def test_a_file_of_nextn_blocks_alone_owns_a_cache() -> None:
    assert where(spec("glm4moe", block_count=1, nextn_predict_layers=1).kv_layers) == [0]
    assert where(spec("deepseek32", block_count=1, nextn_predict_layers=1).kv_layers) == []


@pytest.mark.parametrize("name", [name for name, row in ARCHITECTURES.items() if row.kv is KvRule.ALL])
def test_some_keep_a_cache_for_nextn_blocks(name: str) -> None:
    found = spec(name, nextn_predict_layers=0 if name == "graniteswitch" else 1, attention__indexer__types=1)
    assert where(found.kv_layers) == list(range(found.n_layer_all))


def test_loops_repeat_the_layers() -> None:
    found = spec("nanbeige", num_loops=3, attention__head_count_kv=(4, 2) * 4)
    assert (found.n_layer_all, found.n_layer, found.n_loops) == (24, 24, 3)
    assert found.n_head_kv == (4, 2) * 12
    assert where(found.kv_layers) == list(range(24))
    assert spec("nanbeige").n_layer_all == 8


def test_the_router_of_graniteswitch_is_a_layer() -> None:
    found = spec("graniteswitch")
    assert (found.n_layer_all, found.n_layer, found.n_nextn) == (9, 9, 0)
    assert (found.n_head[-1], found.n_head_kv[-1], found.n_ff[-1]) == (1, 1, 0)
    assert where(found.kv_layers) == list(range(9))


# ── recurrent and hybrid ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"])
def test_recurrent_models(name: str) -> None:
    found = spec(name)
    assert (where(found.recurrent_layers), where(found.kv_layers)) == (list(range(8)), [])


@pytest.mark.parametrize(
    "name",
    ["jamba", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next"],
)
def test_hybrids_by_kv_heads(name: str) -> None:
    found = spec(name, attention__head_count_kv=ALTERNATING)
    assert where(found.recurrent_layers) == [1, 3, 5, 7]
    assert where(found.kv_layers) == [0, 2, 4, 6]


@pytest.mark.parametrize("name", ["nemotron_h", "nemotron_h_moe"])
def test_hybrids_with_layers_that_are_neither(name: str) -> None:
    found = spec(name, attention__head_count_kv=(0, 4, 0, 0, 0, 4, 0, 4), feed_forward_length=(0, 0, 8, 0, 8, 0, 0, 8))
    assert (where(found.recurrent_layers), where(found.kv_layers)) == ([0, 3, 6], [1, 5])


def test_attention_and_state_in_every_layer() -> None:
    found = spec("falcon-h1")
    assert where(found.recurrent_layers) == where(found.kv_layers) == list(range(8))


@pytest.mark.parametrize(
    ("name", "attention"),
    [*((name, [3, 7]) for name in ("qwen3next", "qwen35", "qwen35moe", "qwen4exp")), ("minimax-01", [7])],
)
def test_hybrids_by_interval(name: str, attention: list[int]) -> None:
    found = spec(name)
    assert where(found.kv_layers) == attention
    assert where(found.recurrent_layers) == [layer for layer in range(8) if layer not in attention]
    assert where(spec(name, full_attention_interval=2).kv_layers) == [1, 3, 5, 7]
    listed = spec(name, attention__recurrent_layers=(True, False) * 4)
    assert (where(listed.recurrent_layers), where(listed.kv_layers)) == ([0, 2, 4, 6], [1, 3, 5, 7])


def test_nextn_blocks_of_hybrids() -> None:
    qwen = spec("qwen35", block_count=9, nextn_predict_layers=1)
    assert (where(qwen.kv_layers), len(where(qwen.recurrent_layers))) == ([3, 7], 6)
    ling = spec("bailingmoe3", nextn_predict_layers=1, attention__head_count_kv=(0, 4) * 4)
    assert where(ling.kv_layers) == [1, 3, 5, 7]  # the main context makes a cache for the NextN block too
    pooled: dict[str, GgufValue | None] = {"attention__indexer__types": (1,) * 7}
    glm = spec("glm5-next", nextn_predict_layers=1, attention__head_count_kv=(0, 4) * 4, **pooled)
    assert where(glm.kv_layers) == [1, 3, 5]


def test_sizes_of_states() -> None:
    assert spec("mamba2").ssm == SsmSpec(4, 1024, 64, 16, 2)
    assert spec("mamba").ssm == spec("jamba").ssm == SsmSpec(4, 1024, 64, 16, 0)
    assert (spec("llama").ssm, spec("llama").wkv_head_size, spec("llama").token_shift) == (SsmSpec(), 0, 0)
    assert (spec("rwkv7").wkv_head_size, spec("rwkv7").token_shift) == (64, 2)
    assert spec("arwkv7", token_shift_count=1).token_shift == 1
    assert spec("lfm2").shortconv_l_cache == 3
    assert (spec("kimi-linear").kda_head_dim, spec("kimi-linear").ssm) == (64, SsmSpec(conv_kernel=4))


def test_the_convolution_of_per_layer_embeddings() -> None:
    keys: dict[str, GgufValue] = {"ple__layers": (2,), "ple__ngram_size": 3, "ple__conv_kernel": 4}
    found = spec("qwen4exp", embedding_length_per_layer_input=128, **keys)
    assert found.ple == PleSpec(tuple(layer == 2 for layer in range(8)), 3, 4)
    assert (found.per_layer_embd, found.hyper_connections, found.n_embd_out) == (128, 4, 2048)
    assert spec("qwen4exp").ple is None


# ── latent keys and sparse attention ─────────────────────────────────────────────────────────────────────────────


MLA = [name for name, row in ARCHITECTURES.items() if row.mla]


@pytest.mark.parametrize("name", MLA)
def test_latent_attention(name: str) -> None:
    found = spec(name)
    assert found.mla
    assert (found.head_k, found.head_v, found.head_k_mla, found.head_v_mla) == (576, 512, 192, 128)
    assert found.kv_lora_rank == 512


def test_old_files_without_latent_keys_are_plain() -> None:
    found = spec("deepseek2", attention__key_length_mla=None, attention__value_length_mla=None)
    assert not found.mla


def test_latent_ranks_without_a_latent_cache() -> None:
    found = spec("minicpm3", attention__key_length_mla=192, attention__value_length_mla=128)
    assert (found.mla, found.kv_lora_rank) == (False, 512)


def test_the_value_length_of_some_is_the_latent_s() -> None:
    assert spec("kimi-k3", attention__value_length=None).head_v == 512
    assert spec("glm5-next", attention__value_length=7).head_v == 512


def indexer(name: str, **keys: GgufValue | None) -> IndexerSpec:
    found = spec(name, **keys).indexer
    assert found is not None
    return found


def test_indexers() -> None:
    assert indexer("deepseek32") == IndexerSpec(8, 128, 64, (True,) * 8, 128)
    assert where(indexer("deepseek32", nextn_predict_layers=1).layers) == list(range(7))
    assert where(indexer("dots3note").layers) == [0, 2, 4, 6]
    assert where(indexer("dots3note", nextn_predict_layers=2, attention__indexer__types=(1,) * 8).layers) == [*range(6)]
    assert where(indexer("hy_v4").layers) == [0, 2, 4, 6]
    assert spec("hy_v4", attention__indexer__top_k=0).indexer is None
    assert where(indexer("deepseek4").layers) == [0, 3, 4, 7]


def test_the_indexer_of_msa_begins_after_the_dense_layers() -> None:
    found = indexer("minimax-m3", leading_dense_block_count=3)
    assert (where(found.layers), found.block_size) == ([3, 4, 5, 6, 7], 64)


def test_glm_s_default_indexers() -> None:
    missing: dict[str, GgufValue | None] = {"attention__indexer__types": None, "block_count": 12}
    assert where(indexer("glm-dsa", **missing).layers) == list(range(12))
    long = indexer("glm-dsa", context_length=1 << 20, **missing)
    assert where(long.layers) == [0, 1, 2, 6, 10]
    assert where(indexer("glm-dsa", context_length=1 << 20).layers) == [0, 2, 4, 6]


def test_pooled_index_keys() -> None:
    glm = indexer("glm5-next", attention__head_count_kv=ALTERNATING, attention__indexer__types=(1, 1, 0, 0) * 2)
    assert (where(glm.layers), glm.width, glm.kpool) == ([0, 4], 384, 4)
    assert where(indexer("glm5-next", attention__indexer__types=None).layers) == list(range(8))
    qwen = indexer("qwen4exp", attention__compress_ratios=(0, 0, 0, 4) * 2)
    assert (where(qwen.layers), qwen.width, qwen.kpool) == ([3, 7], 256, 4)
    assert indexer("qwen4exp", attention__compress_ratios=None).width == 128


def test_deepseek4_has_nextn_blocks_only_with_their_tensors() -> None:
    keys: dict[str, GgufValue | None] = {"nextn_predict_layers": 1}
    assert read_spec(model("deepseek4", keys)).n_nextn == 0
    found = read_spec(model("deepseek4", keys, {"blk.7.nextn.eh_proj.weight": (512, 256)}))
    assert (found.n_nextn, found.n_layer) == (1, 7)
    assert where(found.swa_layers) == list(range(8))
    assert found.compress_ratios == (4, 128, 0, 4) * 2
    assert spec("deepseek4", attention__compress_ratios=(4,) * 11).compress_ratios == (4,) * 8


# ── experts, embeddings, the rest ────────────────────────────────────────────────────────────────────────────────


def test_experts() -> None:
    moe: dict[str, GgufValue] = {"expert_count": 16, "expert_used_count": 2}
    assert spec("llama", **moe).experts == ExpertSpec(16, (2,) * 8, (1024,) * 8, 0)
    shared = spec("deepseek2", expert_feed_forward_length=256, expert_shared_count=2, **moe).experts
    assert shared == ExpertSpec(16, (2,) * 8, (256,) * 8, 512)
    listed = spec("nemotron_h_moe", expert_count=4, expert_used_count=(1, 2) * 4, expert_shared_feed_forward_length=99)
    assert listed.experts == ExpertSpec(4, (1, 2) * 4, (1024,) * 8, 99)
    assert spec("hunyuan-dense", expert_count=1).experts is None
    routed = spec("graniteswitch", expert_count=4, expert_used_count=(2,) * 8).experts
    assert routed == ExpertSpec(4, (2,) * 8 + (0,), (1024,) * 8 + (0,), 0)


def test_ties_and_widths() -> None:
    only = {"token_embd.weight": (512, 300)}
    assert read_spec(model("gemma3", {}, only)).tied_embeddings
    assert not read_spec(model("bert", {}, only)).tied_embeddings
    assert not read_spec(model("gemma3", {}, {"blk.0.attn_q.weight": (512, 512)})).tied_embeddings
    assert spec("gemma3n").per_layer_embd == 256
    assert spec("gemma4", embedding_length_per_layer_input=512).per_layer_embd == 512
    assert spec("qwen2", embedding_length_out=64).n_embd_out == 64
    vocoder = spec("wavtokenizer-dec", features_length=768, embedding_length=1282)
    assert (vocoder.n_embd, vocoder.n_embd_out) == (768, 1282)


def test_the_vocabulary_s_size() -> None:
    tokens: dict[str, GgufValue | None] = {"/tokenizer.ggml.tokens": ArraySummary("string", 151936)}
    assert read_spec(model("qwen3", tokens)).n_vocab == 151936
    none: dict[str, GgufValue | None] = {"/tokenizer.ggml.tokens": None}
    assert read_spec(model("qwen3", {**none, "vocab_size": 4096})).n_vocab == 4096
    assert read_spec(model("qwen3", none)).n_vocab == 256


def test_causality_and_rope() -> None:
    assert not spec("bert", attention__causal=False).causal
    assert not spec("llada", attention__causal=True).causal
    keys: dict[str, GgufValue] = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    stretched = spec("qwen3", rope__scaling__original_context_length=8192, **keys)
    assert stretched.rope == RopeSpec("yarn", 4.0, 8192, 10000.0)
    assert spec("llama", rope__scale_linear=2).rope == RopeSpec("linear", 2.0, 32768, 10000.0)
    assert spec("llama", rope__scaling__factor=float("nan")).rope.factor == 1.0


def test_models_without_heads() -> None:
    found = spec("mamba", attention__head_count=0)
    assert (found.head_k, found.n_head_kv) == (0, (4,) * 8)
    plamo = spec("plamo2", attention__head_count=(0, 8) * 4, attention__key_length=128, attention__value_length=128)
    assert (plamo.head_k, plamo.head_v) == (128, 128)


def test_the_template_is_read() -> None:
    template = read_spec(model("qwen3", {"/tokenizer.chat_template": "{% if tools %}{% endif %}"})).template
    assert template is not None
    assert template.tools


# ── other files ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_architecture_is_plain() -> None:
    found = spec("llama-9")
    assert (found.architecture.known, found.architecture.layout) == (False, Layout.PLAIN)
    assert (where(found.kv_layers), where(found.swa_layers)) == (list(range(8)), [])


def test_a_vocabulary_is_no_model() -> None:
    found = read_spec(
        header({"general.architecture": "gemma4", "general.name": "v", "tokenizer.ggml.tokens": ("a", "b")})
    )
    assert (found.vocab_only, found.name, found.n_vocab, found.n_layer_all) == (True, "v", 2, 0)


def test_the_first_part_of_a_split_model_is_no_vocabulary() -> None:
    whole = model("llama", {"/split.count": 2})
    assert not read_spec(header(whole.metadata)).vocab_only


def test_every_vocabulary_of_the_source() -> None:
    paths = sorted((llama_source() / "models").glob("ggml-vocab-*.gguf"))
    assert len(paths) > 15
    for path in paths:
        found = read_spec(read_header(io.BytesIO(path.read_bytes())))
        assert (found.vocab_only, found.architecture.known) == (True, True), path.name
        assert found.n_vocab > 1000, path.name


def test_a_projector() -> None:
    keys: dict[str, GgufValue | None] = {"/clip.has_audio_encoder": True, "/clip.has_vision_encoder": False}
    found = read_spec(model("clip", keys))
    assert (found.architecture.projector, found.modalities, found.n_layer_all) == (True, ("audio",), 0)
    assert len(found.tensors) == 2
    assert read_spec(model("clip")).modalities == ("image",)


def test_what_is_no_model() -> None:
    with pytest.raises(ModelFileError, match=r"general\.architecture is missing"):
        read_spec(header({"general.name": "x"}))
    with pytest.raises(ModelFileError, match="LoRA adapter"):
        read_spec(model("llama", {"/general.type": "adapter"}))
