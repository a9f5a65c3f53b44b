"""The behaviour of llama.cpp for each architecture, as data: one row per name, and nothing of it anywhere else.

Read from the source of build b11434: `LLM_ARCH_NAMES`, the `load_arch_hparams` and `load_arch_tensors` of every model,
`create_memory`, and the graphs. What a row may say, and where that comes from, stands in `traits`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from supervisor.core.spec.traits import (
    Architecture,
    DraftRule,
    Graph,
    IndexerRule,
    KvRule,
    Layout,
    RecurrentFamily,
    RecurrentRule,
    SecondBranch,
    SwaRule,
    WindowKey,
)

_PLAIN = """
    apertus arcee arctic baichuan bailingmoe bailingmoe2 chatglm codeshell dbrx deci deepseek deepseek2-ocr
    dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4 gptj gptneox granite granitemoe grovemoe hunyuan-dense
    hunyuan-moe hunyuan_vl internlm2 jais2 llama maincoder minicpm minimax-m2 mistral3 nemotron olmo olmoe openelm
    orion paddleocr pangu-embedded phi3 phimoe plm pockettts qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3tts
    qwen3vl qwen3vlmoe seed_oss smollm3 stablelm starcoder2 xverse
"""

_BERT = ("bert", "eurobert", "jina-bert-v2", "jina-bert-v3", "neo-bert", "nomic-bert", "nomic-bert-moe")
_DIFFUSION = (("dream", 0), ("llada", 0), ("llada-moe", 1), ("rnd1", 1))
_WHOLE_QKV = ("bloom", "gpt2", "jais", "mpt", "starcoder")

_REQUIRED, _DEFAULTED = WindowKey.REQUIRED, WindowKey.DEFAULTED

_HEAD = r"\.nextn\.(?:embed_tokens|shared_head_head|shared_head_norm)\."
_FEED_FORWARD = r"\.(?:ffn_(?:gate|up|down)|ffn_gate_inp|exp_probs_b|ffn_\w+exps?|ffn_\w+_shexp)\."
_GATES = r"\.attn_(?:q_norm|k_norm|gate)\."

ROWS: Final = (
    *(Architecture(name) for name in _PLAIN.split()),
    *(Architecture(name, graph=Graph(whole_qkv=True)) for name in _WHOLE_QKV),
    Architecture("talkie", graph=Graph(whole_qkv=True, ahead_rows=3)),
    Architecture("hrm_text", graph=Graph(more_rows=1, ahead_rows=4, looped=True)),
    Architecture("bitnet", ties=False),  # its output is computed with the embedding where that is
    Architecture("qwen", graph=Graph(ahead_rows=1)),
    *(Architecture(name, graph=Graph(more_rows=1)) for name in ("minicpm3", "phi2")),
    *(Architecture(name, graph=Graph(parallel=True)) for name in ("command-r", "plamo")),
    Architecture("chameleon", graph=Graph(masked_logits=True)),
    Architecture("cogvlm", graph=Graph(all_logits=True, second_branch=SecondBranch.IMAGES, ahead_rows=1)),
    Architecture("glm4moe", mtp=True),
    Architecture("grok", flash_attention=False, graph=Graph(more_rows=3)),
    Architecture("hy_v3", mtp=True, kept_nextn=re.compile(f"{_HEAD}|{_FEED_FORWARD}")),
    Architecture("llama-embed", graph=Graph(more_rows=1, uncached=True)),
    Architecture("refact", graph=Graph(idle_experts=True)),
    Architecture("t5", all_outputs=True, keeps_embeddings=True, graph=Graph(relative_bias=True)),
    Architecture(
        "t5encoder", encoder=True, all_outputs=True, graph=Graph(relative_bias=True, uncached=True, ahead_rows=7)
    ),
    Architecture("eagle3", ties=False, all_outputs=True, drafts_only=DraftRule.WITHOUT_OUTPUT),
    Architecture("nanbeige", loops=True),
    Architecture("graniteswitch", kv=KvRule.ALL, router_layer=True, graph=Graph(whole_qkv=True)),
    # nothing is kept
    *(Architecture(name, Layout.NONE, kv=KvRule.NEVER, encoder=True, ties=False) for name in _BERT),
    *(
        Architecture(name, Layout.NONE, kv=KvRule.NEVER, causal=False, graph=Graph(more_rows=rows))
        for name, rows in _DIFFUSION
    ),
    Architecture(
        "modern-bert",
        Layout.NONE,
        kv=KvRule.NEVER,
        encoder=True,
        ties=False,
        swa=SwaRule(3, dense_first=True),
    ),
    Architecture(
        "gemma-embedding",
        Layout.NONE,
        kv=KvRule.NEVER,
        encoder=True,
        causal=False,
        swa=SwaRule(6, key=_REQUIRED),
    ),
    Architecture("clef", Layout.NONE, kv=KvRule.NEVER, mtp=True),
    Architecture("wavtokenizer-dec", Layout.NONE, kv=KvRule.NEVER, ties=False, feature_input=True),
    Architecture("clip", Layout.NONE, kv=KvRule.NEVER, ties=False, projector=True),
    # a sliding window
    Architecture("afmoe", Layout.ISWA, swa=SwaRule(4)),
    Architecture("cohere2", Layout.ISWA, swa=SwaRule(4, key=_REQUIRED), graph=Graph(more_rows=1)),
    Architecture(
        "cohere2moe",
        Layout.ISWA,
        swa=SwaRule(4, dense_first=True, key=_REQUIRED),
        mtp=True,
        kept_nextn=re.compile(_HEAD),
        graph=Graph(more_rows=5),
    ),
    Architecture(
        "dflash",
        Layout.ISWA,
        swa=SwaRule(None, uniform_with_hyper_connections=True),
        all_outputs=True,
        drafts_only=DraftRule.WITHOUT_OUTPUT,
    ),
    Architecture("exaone-moe", Layout.ISWA, swa=SwaRule(4, key=_REQUIRED)),
    Architecture("exaone4", Layout.ISWA, swa=SwaRule(4, key=_DEFAULTED, default=4096, only_n_layer=64)),
    Architecture("gemma2", Layout.ISWA, swa=SwaRule(2, key=_DEFAULTED, default=4096)),
    Architecture("gemma3", Layout.ISWA, swa=SwaRule(6)),
    Architecture(
        "gemma3n",
        Layout.ISWA,
        swa=SwaRule(5, key=_REQUIRED),
        kv_layers=20,
        per_layer_embd=256,
        graph=Graph(altup=True),
    ),
    Architecture(
        "gemma4",
        Layout.ISWA,
        swa=SwaRule(None, key=_REQUIRED),
        shared_kv=True,
        per_layer_embd=-1,
    ),
    Architecture(
        "gemma4-assistant",
        Layout.ISWA,
        swa=SwaRule(None, key=_REQUIRED),
        kv=KvRule.NEVER,
        drafts_only=DraftRule.ALWAYS,
    ),
    Architecture("gpt-oss", Layout.ISWA, swa=SwaRule(2, key=_REQUIRED)),
    Architecture("granite_swa", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED)),
    Architecture("laguna", Layout.ISWA, swa=SwaRule(4, dense_first=True)),
    Architecture("llama4", Layout.ISWA, swa=SwaRule(4, default=8192, fixed=8192), graph=Graph(more_rows=2)),
    Architecture("maple", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED)),
    Architecture("mellum", Layout.ISWA, swa=SwaRule(4)),
    Architecture("mimo2", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED), mtp=True),
    Architecture("muse-glimmer", Layout.ISWA, swa=SwaRule(4, key=_REQUIRED)),
    Architecture("olmo2", Layout.ISWA, swa=SwaRule(4)),
    Architecture("plamo3", Layout.ISWA, swa=SwaRule(8)),
    Architecture("smallthinker", Layout.ISWA, swa=SwaRule(4, dense_first=True, fixed=4096), graph=Graph(more_rows=1)),
    Architecture("spark2_5", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED)),
    Architecture(
        "step35",
        Layout.ISWA,
        swa=SwaRule(None, key=_REQUIRED),
        mtp=True,
        kept_nextn=re.compile(f"{_HEAD}|{_FEED_FORWARD}|{_GATES}"),
    ),
    # latent keys
    Architecture("deepseek2", Layout.MLA, mla=True, mtp=True),
    Architecture("mistral4", Layout.MLA, mla=True, mtp=True, graph=Graph(more_rows=1, precise_experts=True)),
    # sparse attention
    Architecture(
        "deepseek32",
        Layout.DSA,
        kv=KvRule.TRUNK_ATTENTION,
        mla=True,
        indexer=IndexerRule.TRUNK,
        mtp=True,
    ),
    Architecture(
        "glm-dsa",
        Layout.DSA,
        kv=KvRule.TRUNK_ATTENTION,
        mla=True,
        indexer=IndexerRule.GLM,
        mtp=True,
    ),
    Architecture(
        "dots3note",
        Layout.DSA,
        swa=SwaRule(None, key=_REQUIRED),
        kv=KvRule.TRUNK_ATTENTION,
        mla=True,
        mla_required=True,
        indexer=IndexerRule.LISTED,
    ),
    Architecture(
        "hy_v4",
        Layout.DSA,
        kv=KvRule.ALL,
        mla=True,
        mla_required=True,
        indexer=IndexerRule.LISTED_IF_SPARSE,
    ),
    Architecture("minimax-m3", Layout.MSA, kv=KvRule.ALL, indexer=IndexerRule.AFTER_DENSE),
    Architecture(
        "deepseek4",
        Layout.DEEPSEEK4,
        swa=SwaRule(0, key=_REQUIRED, listed=False),
        kv=KvRule.ALL,
        indexer=IndexerRule.COMPRESSED,
        compress_ratios=True,
        rollback=True,
        mtp=True,
        hyper_output=True,
    ),
    # recurrent
    Architecture(
        "mamba",
        Layout.RECURRENT,
        recurrent=RecurrentFamily.MAMBA,
        recurrent_rule=RecurrentRule.ALL,
        ssm_groups=False,
        kv=KvRule.NEVER,
    ),
    Architecture(
        "mamba2",
        Layout.RECURRENT,
        recurrent=RecurrentFamily.MAMBA2,
        recurrent_rule=RecurrentRule.ALL,
        kv=KvRule.NEVER,
    ),
    *(
        Architecture(
            name,
            Layout.RECURRENT,
            recurrent=RecurrentFamily.RWKV,
            recurrent_rule=RecurrentRule.ALL,
            kv=KvRule.NEVER,
            graph=Graph(shift_rows=rows),
        )
        for name, rows in (
            ("arwkv7", (1, 4, 4)),
            ("rwkv6", (0, 1, 1)),
            ("rwkv6qwen2", (0, 1, 1)),
            ("rwkv7", (2, 9, 8)),
        )
    ),
    # hybrid
    Architecture(
        "falcon-h1",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA2,
        recurrent_rule=RecurrentRule.ALL,
        kv=KvRule.ALL,
        graph=Graph(more_rows=1, second_branch=SecondBranch.MIXER, scan_rows=(1, 1)),
    ),
    Architecture(
        "jamba",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        ssm_groups=False,
        kv=KvRule.ATTENTION,
        graph=Graph(more_rows=1),
    ),
    Architecture(
        "granitehybrid",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA2,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        graph=Graph(late_rows=3, scan_rows=(5, 15)),
    ),
    Architecture(
        "plamo2",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA2,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        head_lengths_always=True,
        graph=Graph(parallel=True, ahead_rows=10),
    ),
    *(
        Architecture(
            name,
            Layout.HYBRID,
            recurrent=RecurrentFamily.MAMBA2,
            recurrent_rule=RecurrentRule.NO_KV_HEADS_NO_FFN,
            kv=KvRule.ATTENTION_WITHOUT_FFN,
            rollback=True,
            mtp=True,
            graph=Graph(more_rows=1, late_rows=rows, gathers_convolutions=True),
        )
        for name, rows in (("nemotron_h", None), ("nemotron_h_moe", 2))
    ),
    Architecture(
        "lfm2",
        Layout.HYBRID,
        swa=SwaRule(0, listed=False),
        recurrent=RecurrentFamily.SHORTCONV,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        rollback=True,
    ),
    Architecture(
        "lfm2moe",
        Layout.HYBRID,
        recurrent=RecurrentFamily.SHORTCONV,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        rollback=True,
    ),
    Architecture(
        "qwen3next",
        Layout.HYBRID,
        recurrent=RecurrentFamily.DELTA_NET,
        recurrent_rule=RecurrentRule.INTERVAL,
        kv=KvRule.TRUNK_ATTENTION,
        mtp=True,
        graph=Graph(split_qkvz=True),
    ),
    *(
        Architecture(
            name,
            Layout.HYBRID,
            recurrent=RecurrentFamily.DELTA_NET,
            recurrent_rule=RecurrentRule.INTERVAL,
            kv=KvRule.TRUNK_ATTENTION,
            rollback=True,
            thinks_from=thinks_from,
            mtp=True,
        )
        for name, thinks_from in (("qwen35", 4096), ("qwen35moe", 0))  # Qwen3.5 and 3.6 of less than 9 billion
    ),
    Architecture(
        "qwen4exp",
        Layout.HYBRID,
        recurrent=RecurrentFamily.DELTA_NET,
        recurrent_rule=RecurrentRule.INTERVAL,
        kv=KvRule.TRUNK_ATTENTION,
        indexer=IndexerRule.RATIO_POOLED,
        compress_ratios=True,
        rollback=True,
        mtp=True,
        hyper_output=True,
        per_layer_embd=-1,
    ),
    Architecture(
        "minimax-01",
        Layout.HYBRID,
        recurrent=RecurrentFamily.LIGHTNING,
        recurrent_rule=RecurrentRule.INTERVAL,
        interval=8,
        kv=KvRule.TRUNK_ATTENTION,
        graph=Graph(ahead_rows=1),
    ),
    Architecture(
        "kimi-linear",
        Layout.HYBRID,
        recurrent=RecurrentFamily.KDA,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        mla=True,
        mla_required=True,
    ),
    Architecture(
        "kimi-k3",
        Layout.HYBRID,
        recurrent=RecurrentFamily.KDA,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        mla=True,
        mla_required=True,
        latent_values=True,
        rollback=True,
        graph=Graph(situ=True, mixed_streams=1, ahead_rows=2),
    ),
    Architecture(
        "bailingmoe3",
        Layout.HYBRID,
        recurrent=RecurrentFamily.KDA,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        mla=True,
        mla_required=True,
        rollback=True,
        mtp=True,
    ),
    Architecture(
        "glm5-next",
        Layout.HYBRID,
        recurrent=RecurrentFamily.KDA,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.TRUNK_ATTENTION,
        mla=True,
        mla_required=True,
        latent_values=True,
        indexer=IndexerRule.POOLED,
        rollback=True,
        mtp=True,
        nextn_graph=False,
        graph=Graph(ahead_rows=16),
    ),
)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({row.name: row for row in ROWS})


def lookup(name: str, architectures: Mapping[str, Architecture] = ARCHITECTURES) -> Architecture:
    """Return the row of an architecture; for a name that llama.cpp does not know, a plain row marked as unknown."""
    return architectures.get(name) or Architecture(name, known=False)
