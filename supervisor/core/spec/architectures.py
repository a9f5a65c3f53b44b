"""What llama.cpp does for each architecture, as data: one row per name it knows.

Read from the source of build b11434: `LLM_ARCH_NAMES`, the `load_arch_hparams` of every model and `create_memory`.
A row says by which rule something is decided, never how much it is; `core.spec` applies the rules to a header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Layout(Enum):
    """How an architecture remembers."""

    PLAIN = "plain"  # keys and values per layer
    ISWA = "iswa"  # two such caches: layers that see everything, layers that see a window
    MLA = "mla"  # one latent key per token, no values
    DSA = "dsa"  # latent keys, and index keys to choose among them
    MSA = "msa"  # keys and values, and index keys and values
    DEEPSEEK4 = "deepseek4"  # keys of a window, compressed keys, compressor states
    RECURRENT = "recurrent"  # a state of fixed size
    HYBRID = "hybrid"  # some layers have a state, some a cache
    NONE = "none"  # nothing is kept between batches


class RecurrentFamily(Enum):
    """What a recurrent layer computes: it decides the size of its state."""

    MAMBA = "mamba"
    MAMBA2 = "mamba2"
    DELTA_NET = "delta-net"
    RWKV = "rwkv"
    SHORTCONV = "shortconv"
    KDA = "kda"
    LIGHTNING = "lightning"


class RecurrentRule(Enum):
    """Which layers are recurrent; NextN blocks never are."""

    ALL = "all"
    NO_KV_HEADS = "no-kv-heads"  # those with head_count_kv 0
    NO_KV_HEADS_NO_FFN = "no-kv-heads-no-ffn"  # those with head_count_kv 0 and feed_forward_length 0
    INTERVAL = "interval"  # as listed in attention.recurrent_layers, else all but every n-th


class KvRule(Enum):
    """Which layers own a cache in the main context."""

    TRUNK = "trunk"  # all but the NextN blocks; all of a file that is nothing but NextN blocks
    ALL = "all"  # NextN blocks too
    TRUNK_ATTENTION = "trunk-attention"  # neither recurrent nor NextN
    ATTENTION = "attention"  # what is not recurrent, NextN blocks too
    ATTENTION_WITHOUT_FFN = "attention-without-ffn"  # … and has no feed-forward part
    NEVER = "never"


class WindowKey(Enum):
    """What the key `attention.sliding_window` means."""

    REQUIRED = "required"
    DEFAULTED = "defaulted"  # absent: the default
    OPTIONAL = "optional"  # absent: the default; 0: no window at all


class IndexerRule(Enum):
    """Which layers own index keys, and where that is written."""

    TRUNK = "trunk"  # every layer of the trunk
    GLM = "glm"  # as listed, else GLM-5's pattern
    LISTED = "listed"  # as listed
    LISTED_IF_SPARSE = "listed-if-sparse"  # as listed, and none at all where top_k is 0
    AFTER_DENSE = "after-dense"  # from the first sparse layer on
    POOLED = "pooled"  # attention layers, as listed, else all of them; key, gate and pooled key in a row
    RATIO_POOLED = "ratio-pooled"  # attention layers; key and pooled key in a row where there is a compress ratio
    COMPRESSED = "compressed"  # layers with compress ratio 4


@dataclass(frozen=True, slots=True)
class SwaRule:
    """Sliding-window attention.

    Attributes:
        period: one layer in so many sees everything; 0: none does; None: the file has to list the layers.
        dense_first: the layer that sees everything is the first of a period, not the last.
        key: what the window's key means.
        default: window where the key is absent.
        fixed: window whatever the key says.
        listed: the file may list the layers, or name another period.
        only_n_layer: the rule holds for models of so many layers only.
        uniform_with_hyper_connections: all layers have the window where the model has hyper-connections.
    """

    period: int | None
    dense_first: bool = False
    key: WindowKey = WindowKey.OPTIONAL
    default: int = 0
    fixed: int = 0
    listed: bool = True
    only_n_layer: int = 0
    uniform_with_hyper_connections: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row.

    Attributes:
        name: as in `general.architecture`.
        known: False for a name that is not in the table: it gets the plain layout.
        swa: sliding-window attention; None: the window's key is ignored.
        recurrent, recurrent_rule: what the recurrent layers are, and which.
        interval: every n-th layer is attention, unless the file says otherwise.
        ssm_groups: `ssm.group_count` counts.
        kv: which layers own a cache.
        kv_layers: only so many layers from the start own a cache; 0: no limit.
        shared_kv: the last `attention.shared_kv_layers` layers own no cache.
        mla, mla_required: the MLA keys are read; the engine does not load a file without them.
        latent_values: the value length is the rank of the latent.
        indexer: which layers own index keys.
        compress_ratios: `attention.compress_ratios` is read.
        rollback: its recurrent state can be rolled back, so speculative decoding keeps copies.
        mtp: its NextN blocks can be loaded for speculative decoding; elsewhere they are left out always.
        encoder: embeds text rather than generating it.
        causal: False: never causal, whatever the header says.
        ties: the token embedding serves as output where the file has no output tensor.
        hyper_output: an output embedding has all residual streams.
        per_layer_embd: width of its per-layer embeddings; -1: a key says.
        head_lengths_always: key and value length count even where the first layer has no heads.
        feature_input: `features_length` is the width inside, `embedding_length` that of the output.
        loops: `num_loops` repeats the blocks, each with a cache of its own.
        router_layer: one more attention layer with a single head routes adapters.
        projector: not a language model but what turns images or sound into embeddings.
    """

    name: str
    layout: Layout = Layout.PLAIN
    known: bool = True
    swa: SwaRule | None = None
    recurrent: RecurrentFamily | None = None
    recurrent_rule: RecurrentRule | None = None
    interval: int = 4
    ssm_groups: bool = True
    kv: KvRule = KvRule.TRUNK
    kv_layers: int = 0
    shared_kv: bool = False
    mla: bool = False
    mla_required: bool = False
    latent_values: bool = False
    indexer: IndexerRule | None = None
    compress_ratios: bool = False
    rollback: bool = False
    mtp: bool = False
    encoder: bool = False
    causal: bool = True
    ties: bool = True
    hyper_output: bool = False
    per_layer_embd: int = 0
    head_lengths_always: bool = False
    feature_input: bool = False
    loops: bool = False
    router_layer: bool = False
    projector: bool = False


_PLAIN = """
    apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm command-r dbrx
    deci deepseek deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4 gpt2 gptj gptneox granite
    granitemoe grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl internlm2 jais jais2 llama llama-embed
    maincoder minicpm minicpm3 minimax-m2 mistral3 mpt nemotron olmo olmoe openelm orion paddleocr pangu-embedded phi2
    phi3 phimoe plamo plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3tts qwen3vl qwen3vlmoe refact
    seed_oss smollm3 stablelm starcoder starcoder2 t5 talkie xverse
"""

_BERT = ("bert", "eurobert", "jina-bert-v2", "jina-bert-v3", "neo-bert", "nomic-bert", "nomic-bert-moe")
_DIFFUSION = ("dream", "llada", "llada-moe", "rnd1")

_REQUIRED, _DEFAULTED = WindowKey.REQUIRED, WindowKey.DEFAULTED

_ROWS = (
    *(Architecture(name) for name in _PLAIN.split()),
    *(Architecture(name, mtp=True) for name in ("glm4moe", "hy_v3")),
    Architecture("t5encoder", encoder=True),
    Architecture("eagle3", ties=False),
    Architecture("nanbeige", loops=True),
    Architecture("graniteswitch", kv=KvRule.ALL, router_layer=True),
    # nothing is kept
    *(Architecture(name, Layout.NONE, kv=KvRule.NEVER, encoder=True, ties=False) for name in _BERT),
    *(Architecture(name, Layout.NONE, kv=KvRule.NEVER, causal=False) for name in _DIFFUSION),
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
    Architecture("cohere2", Layout.ISWA, swa=SwaRule(4, key=_REQUIRED)),
    Architecture("cohere2moe", Layout.ISWA, swa=SwaRule(4, dense_first=True, key=_REQUIRED), mtp=True),
    Architecture("dflash", Layout.ISWA, swa=SwaRule(None, uniform_with_hyper_connections=True)),
    Architecture("exaone-moe", Layout.ISWA, swa=SwaRule(4, key=_REQUIRED)),
    Architecture("exaone4", Layout.ISWA, swa=SwaRule(4, key=_DEFAULTED, default=4096, only_n_layer=64)),
    Architecture("gemma2", Layout.ISWA, swa=SwaRule(2, key=_DEFAULTED, default=4096)),
    Architecture("gemma3", Layout.ISWA, swa=SwaRule(6)),
    Architecture("gemma3n", Layout.ISWA, swa=SwaRule(5, key=_REQUIRED), kv_layers=20, per_layer_embd=256),
    Architecture("gemma4", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED), shared_kv=True, per_layer_embd=-1),
    Architecture("gemma4-assistant", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED), kv=KvRule.NEVER),
    Architecture("gpt-oss", Layout.ISWA, swa=SwaRule(2, key=_REQUIRED)),
    Architecture("granite_swa", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED)),
    Architecture("laguna", Layout.ISWA, swa=SwaRule(4, dense_first=True)),
    Architecture("llama4", Layout.ISWA, swa=SwaRule(4, default=8192, fixed=8192)),
    Architecture("maple", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED)),
    Architecture("mellum", Layout.ISWA, swa=SwaRule(4)),
    Architecture("mimo2", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED), mtp=True),
    Architecture("muse-glimmer", Layout.ISWA, swa=SwaRule(4, key=_REQUIRED)),
    Architecture("olmo2", Layout.ISWA, swa=SwaRule(4)),
    Architecture("plamo3", Layout.ISWA, swa=SwaRule(8)),
    Architecture("smallthinker", Layout.ISWA, swa=SwaRule(4, dense_first=True, fixed=4096)),
    Architecture("spark2_5", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED)),
    Architecture("step35", Layout.ISWA, swa=SwaRule(None, key=_REQUIRED), mtp=True),
    # latent keys
    Architecture("deepseek2", Layout.MLA, mla=True, mtp=True),
    Architecture("mistral4", Layout.MLA, mla=True, mtp=True),
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
        )
        for name in ("arwkv7", "rwkv6", "rwkv6qwen2", "rwkv7")
    ),
    # hybrid
    Architecture(
        "falcon-h1",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA2,
        recurrent_rule=RecurrentRule.ALL,
        kv=KvRule.ALL,
    ),
    Architecture(
        "jamba",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        ssm_groups=False,
        kv=KvRule.ATTENTION,
    ),
    Architecture(
        "granitehybrid",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA2,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
    ),
    Architecture(
        "plamo2",
        Layout.HYBRID,
        recurrent=RecurrentFamily.MAMBA2,
        recurrent_rule=RecurrentRule.NO_KV_HEADS,
        kv=KvRule.ATTENTION,
        head_lengths_always=True,
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
        )
        for name in ("nemotron_h", "nemotron_h_moe")
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
    *(
        Architecture(
            name,
            Layout.HYBRID,
            recurrent=RecurrentFamily.DELTA_NET,
            recurrent_rule=RecurrentRule.INTERVAL,
            kv=KvRule.TRUNK_ATTENTION,
            rollback=rollback,
            mtp=True,
        )
        for name, rollback in (("qwen3next", False), ("qwen35", True), ("qwen35moe", True))
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
    ),
)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({row.name: row for row in _ROWS})


def lookup(name: str) -> Architecture:
    """The row of an architecture; for a name that llama.cpp did not know, a plain one that says so."""
    return ARCHITECTURES.get(name) or Architecture(name, known=False)
