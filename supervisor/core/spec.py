"""One frozen `ModelSpec` per model: everything of a header that decides what llama.cpp will allocate.

Per-layer tuples have `n_layer_all` items. Reading is lenient about the width of integers, never about missing keys:
what llama.cpp refuses to load is a `ModelFileError` that names the key.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.architectures import Architecture
from supervisor.core.gguf import TensorInfo
from supervisor.core.template import TemplateCapabilities


@dataclass(frozen=True, slots=True)
class SsmSpec:
    """State-space sizes: Mamba's names, which delta nets use too. `group` is 0 where the architecture has no groups."""

    conv_kernel: int = 0
    inner: int = 0
    state: int = 0
    dt_rank: int = 0
    group: int = 0


@dataclass(frozen=True, slots=True)
class IndexerSpec:
    """The small attention that selects what sparse attention looks at.

    Attributes:
        heads, head_dim, top_k: as in the header.
        types: per layer, whether the file marks its indexer as its own (1) rather than shared (0).
        layers: per layer, whether it owns a cache of index keys in the main context.
        kpool: keys are pooled over this many cells; 0 where they are not.
        width: elements of one cached index key, the pooled parts included.
        block_size: of block-sparse attention (MSA), else 0.
    """

    heads: int
    head_dim: int
    top_k: int
    types: tuple[bool, ...]
    layers: tuple[bool, ...]
    kpool: int = 0
    width: int = 0
    block_size: int = 0


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """Mixture of experts. `used` and `ff` are per layer; `shared_ff` is the width of all shared experts together."""

    count: int
    used: tuple[int, ...]
    ff: tuple[int, ...]
    shared_ff: int


@dataclass(frozen=True, slots=True)
class PleSpec:
    """Per-layer n-gram embeddings with a convolution: its history is part of the recurrent state of `layers`."""

    layers: tuple[bool, ...]
    ngram_size: int
    conv_kernel: int


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding as trained. `factor` is 1 and `scaling` "none" or "linear" where nothing is stretched."""

    scaling: str
    factor: float
    original_context: int
    freq_base: float


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a header says, resolved by its architecture's rules to facts per layer.

    Attributes:
        vocab_only: vocabulary only, no weights: nothing but names, vocabulary, native context and template is known.
        n_layer_all: layers llama.cpp counts, for device assignment too: blocks of the file with NextN blocks; with
            the repetitions of a looped model and the router layer of graniteswitch, which have no tensors of their own.
        n_layer: n_layer_all without the NextN blocks, which come last.
        n_embd_out: width of an output embedding.
        head_k, head_v: size of a head in layers with full attention; `*_swa` in those with a window.
        head_k_mla, head_v_mla: of multi-head latent attention; 0 where the architecture or this file has none.
        window: of sliding-window attention, 0 without.
        swa_layers: layers that attend to the window only.
        recurrent_layers: layers that own a recurrent state in the main context.
        kv_layers: layers that own a cache in the main context; NextN blocks mostly do not, nor layers that share one.
        n_loops: how often a looped model runs its blocks.
        leading_dense: blocks before the first one with experts (or with an indexer).
        per_layer_embd: width of Gemma's per-layer embedding.
        hyper_connections: residual streams; 0 without.
        modalities: what the file takes in: "text", or what a projector adds ("image", "audio").
    """

    architecture: Architecture
    name: str | None
    vocab_only: bool
    n_layer_all: int
    n_nextn: int
    n_layer: int
    n_ctx_train: int
    n_embd: int
    n_embd_out: int
    n_vocab: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    n_ff: tuple[int, ...]
    head_k: int
    head_v: int
    head_k_swa: int
    head_v_swa: int
    head_k_mla: int
    head_v_mla: int
    kv_lora_rank: int
    window: int
    swa_layers: tuple[bool, ...]
    recurrent_layers: tuple[bool, ...]
    kv_layers: tuple[bool, ...]
    n_loops: int
    ssm: SsmSpec
    wkv_head_size: int
    token_shift: int
    shortconv_l_cache: int
    kda_head_dim: int
    indexer: IndexerSpec | None
    compress_ratios: tuple[int, ...]
    hyper_connections: int
    ple: PleSpec | None
    experts: ExpertSpec | None
    leading_dense: int
    per_layer_embd: int
    causal: bool
    pooling: int | None
    rope: RopeSpec
    tied_embeddings: bool
    tensors: tuple[TensorInfo, ...]
    template: TemplateCapabilities | None
    modalities: tuple[str, ...]

    @property
    def mla(self) -> bool:
        """Whether the cache holds one latent key per token and no values."""
        return self.head_k_mla > 0 and self.head_v_mla > 0
