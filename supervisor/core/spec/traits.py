"""The vocabulary of a row in the table of architectures: rules for a header, and traits of a graph.

Rules say by which way something is decided, never how much it is: `core.spec` applies them to a header. Traits say what
a graph does that neither rules nor the tensors' widths tell: `core.memory` asks for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Layout(Enum):
    """The form of an architecture's memory."""

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
    """The computation of a recurrent layer, which decides the size of its state."""

    MAMBA = "mamba"
    MAMBA2 = "mamba2"
    DELTA_NET = "delta-net"
    RWKV = "rwkv"
    SHORTCONV = "shortconv"
    KDA = "kda"
    LIGHTNING = "lightning"


class RecurrentRule(Enum):
    """The rule for which layers are recurrent; NextN blocks never are."""

    ALL = "all"
    NO_KV_HEADS = "no-kv-heads"  # those with head_count_kv 0
    NO_KV_HEADS_NO_FFN = "no-kv-heads-no-ffn"  # those with head_count_kv 0 and feed_forward_length 0
    INTERVAL = "interval"  # as listed in attention.recurrent_layers, else all but every n-th


class KvRule(Enum):
    """The rule for which layers own a cache in the main context."""

    TRUNK = "trunk"  # all but the NextN blocks; all of a file that is nothing but NextN blocks
    ALL = "all"  # NextN blocks too
    TRUNK_ATTENTION = "trunk-attention"  # neither recurrent nor NextN
    ATTENTION = "attention"  # what is not recurrent, NextN blocks too
    ATTENTION_WITHOUT_FFN = "attention-without-ffn"  # … and has no feed-forward part
    NEVER = "never"


class WindowKey(Enum):
    """The meaning of the key `attention.sliding_window`."""

    REQUIRED = "required"
    DEFAULTED = "defaulted"  # absent: the default
    OPTIONAL = "optional"  # absent: the default; 0: no window at all


class IndexerRule(Enum):
    """The rule for which layers own index keys, and where that is written."""

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


class DraftRule(Enum):
    """The rule for whether a model only drafts for another, whose context llama.cpp then wants."""

    ALWAYS = "always"
    WITHOUT_OUTPUT = "without-output"  # where the file lacks embedding or output, and takes those of the other


class SecondBranch(Enum):
    """The second branch that is alive beside the feed-forward part."""

    IMAGES = "images"  # a second feed-forward part, for images, where slots have streams of their own
    MIXER = "mixer"  # what attention and Mamba put out, side by side


@dataclass(frozen=True, slots=True)
class Graph:
    """Traits of a graph (`src/models/*.cpp` of llama.cpp, where nothing else is named): what stays alive in it.

    Figures were read there and confirmed, or raised to be safe, by measurements; those of a pipeline, where layers are
    on several devices, were fitted to fixtures on two to four workers.

    Attributes:
        more_rows: rows of the residual stream that are kept for longer: of parallel branches, scales, routers.
        ahead_rows: rows that are kept where a back end computes nodes before their turn.
        parallel: attention and feed-forward part run side by side.
        whole_qkv: attends with views of one tensor of queries, keys and values, which stays whole.
        relative_bias: a number for every pair of tokens tells how far they are apart (`build_inp_pos_bucket_*`).
        uncached: attends within the batch, though it has a cache (`build_attn_inp_no_cache`).
        all_logits: computes logits of all tokens of a batch, not of those alone that are put out.
        masked_logits: keeps the logits beside those without the tokens that it may not say.
        second_branch: what is alive beside the feed-forward part.
        altup: keeps four residual streams, and embeddings of all layers beside them.
        split_qkvz: cuts queries, keys, values and gates of a delta net out of one tensor and joins them anew
            (`build_qkvz`).
        idle_experts: files may have tensors of experts, which the graph does not use.
        situ: an activation of both gate and up, which takes one tensor more.
        precise_experts: what experts put out is computed in F32.
        looped: layers are run again with the same weights.
        mixed_streams: residual streams that one node of a layer mixes; 0: none does.
        late_rows: rows of the residual stream beside the states that Mamba's layers write; None: the family's.
        gathers_convolutions: with its states on the host, all that Mamba's layers convolve goes there first.
        scan_rows: in a pipeline, rows more beside Mamba's layers on the first device and on those after it; None: as
            many as with any other.
        shift_rows: in a pipeline, rows beside one state more, on the first device, on those after it, and on the last:
            from RWKV 7 on the values of the first layer travel to every other. None: nothing travels.
    """

    more_rows: int = 0
    ahead_rows: int = 0
    parallel: bool = False
    whole_qkv: bool = False
    relative_bias: bool = False
    uncached: bool = False
    all_logits: bool = False
    masked_logits: bool = False
    second_branch: SecondBranch | None = None
    altup: bool = False
    split_qkvz: bool = False
    idle_experts: bool = False
    situ: bool = False
    precise_experts: bool = False
    looped: bool = False
    mixed_streams: int = 0
    late_rows: int | None = None
    gathers_convolutions: bool = False
    scan_rows: tuple[int, int] | None = None
    shift_rows: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Architecture:
    """A row of the table.

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
        thinks_from: models of a smaller embedding length were not made to reason where nobody says so, though their
            templates begin with a thought; 0: nothing is known of that.
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
        flash_attention: False: turned off, whatever is asked (`llama_init_from_model`).
        all_outputs: puts out every token of a batch (`llama_model_has_encoder`).
        keeps_embeddings: embeddings are put out beside logits without being asked for (`output_reserve`).
        drafts_only: whether it cannot run by itself (the constructor of `llama_context`); None: it can.
        nextn_graph: False: its NextN blocks are loaded, but there is no graph yet that runs them.
        kept_nextn: tensors of NextN blocks that are loaded even where nothing drafts: all that `load_arch_tensors`
            takes for optional; None: nothing of them.
        graph: what its graph keeps alive.
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
    thinks_from: int = 0
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
    flash_attention: bool = True
    all_outputs: bool = False
    keeps_embeddings: bool = False
    drafts_only: DraftRule | None = None
    nextn_graph: bool = True
    kept_nextn: re.Pattern[str] | None = None
    graph: Graph = Graph()

    @property
    def only_embeds(self) -> bool:
        """True if it embeds text and llama.cpp gives it no cache."""
        return self.encoder and self.layout is Layout.NONE

    @property
    def attends_in_batch(self) -> bool:
        """True if the tokens of a batch see each other alone, and no cache."""
        return self.layout is Layout.NONE or self.graph.uncached
