"""One frozen `ModelSpec` per model: everything of a header that decides what llama.cpp will allocate.

Reading is lenient about the width of integers, never about keys that llama.cpp requires: without one it would not
load the file, so a `ModelFileError` names it. An architecture it does not know is read by the plain rules; its row
says so (`spec.architecture.known`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.core.gguf import ArraySummary, GgufHeader, TensorInfo
from supervisor.core.spec.architectures import ARCHITECTURES, lookup
from supervisor.core.spec.blocks import read_blocks
from supervisor.core.spec.keys import Keys
from supervisor.core.spec.layers import (
    Blocks,
    Flags,
    read_kv_layers,
    read_recurrent_layers,
    read_swa_layers,
    read_window,
)
from supervisor.core.spec.parts import (
    ExpertSpec,
    IndexerSpec,
    PleSpec,
    RopeSpec,
    SsmSpec,
    read_experts,
    read_indexer,
    read_ple,
    read_rope,
    read_ssm,
)
from supervisor.core.spec.template import TemplateCapabilities, read_template
from supervisor.core.spec.tensors import TensorGroups, group_tensors
from supervisor.core.spec.traits import Architecture, RecurrentFamily
from supervisor.errors import ModelFileError

__all__ = ["ExpertSpec", "IndexerSpec", "ModelSpec", "PleSpec", "RopeSpec", "SsmSpec", "read_spec"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The facts of a header, resolved per layer by its architecture's rules.

    Per-layer tuples have `n_layer_all` items. A file without layers to run (`vocab_only`, a projector) has none.

    Attributes:
        vocab_only: vocabulary only, no weights: just names, vocabulary, native context and template are known.
        n_layer_all: layers as llama.cpp counts them, for devices too: NextN blocks included, every round of a looped
            model, the router layer of graniteswitch.
        n_layer: n_layer_all without the NextN blocks, which come last.
        n_embd_out: width of an output embedding.
        head_k, head_v: size of a head in layers that see everything; `*_swa` in those that see a window.
        head_k_mla, head_v_mla: of multi-head latent attention; 0 where this file or its architecture has none.
        window: of sliding-window attention; 0 without, and in files that say 0 all the same.
        swa_layers: layers that see the window only.
        recurrent_layers: layers that own a recurrent state.
        kv_layers: layers that own a cache in the main context: most NextN blocks do not, nor layers that share one.
        n_loops: how often a looped model runs its blocks.
        token_shift: vectors that RWKV keeps per layer.
        hyper_connections: residual streams; 0 without.
        leading_dense: blocks before the first with experts.
        per_layer_embd: width of per-layer embeddings.
        pooling: llama.cpp's number (0 none, 1 mean, 2 cls, 3 last, 4 rank); None where the file says nothing.
        groups: the tensors by layer.
        modalities: what goes in: "text"; for a projector "image", "audio".
    """

    architecture: Architecture
    name: str | None = None
    vocab_only: bool = False
    n_layer_all: int = 0
    n_nextn: int = 0
    n_layer: int = 0
    n_ctx_train: int = 0
    n_embd: int = 0
    n_embd_out: int = 0
    n_vocab: int = 0
    n_head: tuple[int, ...] = ()
    n_head_kv: tuple[int, ...] = ()
    n_ff: tuple[int, ...] = ()
    head_k: int = 0
    head_v: int = 0
    head_k_swa: int = 0
    head_v_swa: int = 0
    head_k_mla: int = 0
    head_v_mla: int = 0
    kv_lora_rank: int = 0
    window: int = 0
    swa_layers: Flags = ()
    recurrent_layers: Flags = ()
    kv_layers: Flags = ()
    n_loops: int = 1
    ssm: SsmSpec = field(default_factory=SsmSpec)
    wkv_head_size: int = 0
    token_shift: int = 0
    shortconv_l_cache: int = 0
    kda_head_dim: int = 0
    indexer: IndexerSpec | None = None
    compress_ratios: tuple[int, ...] = ()
    hyper_connections: int = 0
    ple: PleSpec | None = None
    experts: ExpertSpec | None = None
    leading_dense: int = 0
    per_layer_embd: int = 0
    causal: bool = True
    pooling: int | None = None
    rope: RopeSpec = field(default_factory=RopeSpec)
    tied_embeddings: bool = False
    tensors: tuple[TensorInfo, ...] = ()
    groups: TensorGroups = field(default_factory=TensorGroups)
    template: TemplateCapabilities | None = None
    modalities: tuple[str, ...] = ()

    @property
    def mla(self) -> bool:
        """True if the cache holds one latent key per token and no values."""
        return self.head_k_mla > 0 and self.head_v_mla > 0


def read_spec(header: GgufHeader, architectures: Mapping[str, Architecture] = ARCHITECTURES) -> ModelSpec:
    """Return the facts of a model; of a split one, of its shards combined.

    Raises `ModelFileError` with the key at fault.
    """
    name = header.architecture
    if name is None:
        raise ModelFileError("general.architecture is missing: not a model, or a damaged one.")
    if header.metadata.get("general.type") == "adapter":
        raise ModelFileError("The file is a LoRA adapter, not a model.")
    architecture = lookup(name, architectures)
    if architecture.projector:
        return ModelSpec(architecture, header.name, tensors=header.tensors, modalities=_projected(header))
    keys = Keys(header.metadata, name)
    if not header.tensors and (header.split_count or 1) == 1:
        return _vocabulary(header, architecture, keys)
    return _read_model(header, architecture, keys)


def _vocabulary(header: GgufHeader, architecture: Architecture, keys: Keys) -> ModelSpec:
    return ModelSpec(
        architecture,
        header.name,
        vocab_only=True,
        n_ctx_train=keys.integer("context_length", 0),
        n_vocab=_read_n_vocab(header, keys),
        template=_read_template(header),
        modalities=("text",),
    )


def _read_model(header: GgufHeader, architecture: Architecture, keys: Keys) -> ModelSpec:
    tensor_names = frozenset(tensor.name for tensor in header.tensors)
    blocks = read_blocks(keys, architecture, tensor_names)
    n_ctx_train = keys.integer("context_length")
    n_embd = keys.integer("features_length" if architecture.feature_input else "embedding_length")
    head_k, head_v = _read_head_sizes(keys, architecture, blocks, n_embd)
    recurrent_layers = read_recurrent_layers(keys, architecture, blocks)
    kv_layers = read_kv_layers(keys, architecture, blocks, recurrent_layers)
    window = read_window(keys, architecture.swa, blocks)
    swa = None if window is None else architecture.swa
    family = architecture.recurrent
    mla_default = None if architecture.mla_required else 0
    return ModelSpec(
        architecture,
        header.name,
        n_layer_all=blocks.total,
        n_nextn=blocks.total - blocks.trunk,
        n_layer=blocks.trunk,
        n_ctx_train=n_ctx_train,
        n_embd=n_embd,
        n_embd_out=_read_n_embd_out(keys, architecture, blocks, n_embd),
        n_vocab=_read_n_vocab(header, keys),
        n_head=blocks.n_head,
        n_head_kv=blocks.n_head_kv,
        n_ff=blocks.n_ff,
        head_k=head_k,
        head_v=head_v,
        head_k_swa=keys.integer("attention.key_length_swa", head_k),
        head_v_swa=keys.integer("attention.value_length_swa", head_v),
        head_k_mla=keys.integer("attention.key_length_mla", mla_default) if architecture.mla else 0,
        head_v_mla=keys.integer("attention.value_length_mla", mla_default) if architecture.mla else 0,
        kv_lora_rank=keys.integer("attention.kv_lora_rank", None if architecture.mla else 0),
        window=window or 0,
        swa_layers=read_swa_layers(keys, swa, blocks, recurrent_layers),
        recurrent_layers=recurrent_layers,
        kv_layers=kv_layers,
        n_loops=blocks.loops,
        ssm=read_ssm(keys, architecture),
        wkv_head_size=keys.integer("wkv.head_size") if family is RecurrentFamily.RWKV else 0,
        token_shift=keys.integer("token_shift_count", 2) if family is RecurrentFamily.RWKV else 0,
        shortconv_l_cache=keys.integer("shortconv.l_cache") if family is RecurrentFamily.SHORTCONV else 0,
        kda_head_dim=keys.integer("kda.head_dim") if family is RecurrentFamily.KDA else 0,
        indexer=read_indexer(keys, architecture, blocks, kv_layers),
        compress_ratios=blocks.compress_ratios,
        hyper_connections=blocks.hyper_connections,
        ple=read_ple(keys, architecture, blocks),
        experts=read_experts(keys, blocks),
        leading_dense=keys.integer("leading_dense_block_count", 0),
        per_layer_embd=_read_per_layer_embd(keys, architecture),
        causal=architecture.causal and keys.flag("attention.causal", True),
        pooling=keys.integer("pooling_type") if keys.has("pooling_type") else None,
        rope=read_rope(keys, n_ctx_train),
        tied_embeddings=(
            architecture.ties and "output.weight" not in tensor_names and "token_embd.weight" in tensor_names
        ),
        tensors=header.tensors,
        groups=group_tensors(header.tensors, blocks.total),
        template=_read_template(header),
        modalities=("text",),
    )


def _read_head_sizes(keys: Keys, architecture: Architecture, blocks: Blocks, n_embd: int) -> tuple[int, int]:
    """Return the sizes of a key and a value head. llama.cpp reads them only where the first layer has heads."""
    heads = blocks.n_head[0]
    if heads == 0 and not architecture.head_lengths_always:
        return 0, 0
    default = n_embd // heads if heads else 0
    key = keys.integer("attention.key_length", default)
    if architecture.latent_values:
        return key, keys.integer("attention.kv_lora_rank")
    return key, keys.integer("attention.value_length", default)


def _read_n_embd_out(keys: Keys, architecture: Architecture, blocks: Blocks, n_embd: int) -> int:
    if architecture.hyper_output:
        return blocks.hyper_connections * n_embd
    default = keys.integer("embedding_length") if architecture.feature_input else n_embd
    return keys.integer("embedding_length_out", 0) or default


def _read_per_layer_embd(keys: Keys, architecture: Architecture) -> int:
    if architecture.per_layer_embd >= 0:
        return architecture.per_layer_embd
    return keys.integer("embedding_length_per_layer_input", 0)


def _read_n_vocab(header: GgufHeader, keys: Keys) -> int:
    """Return the tokens of the vocabulary; of a model without one, the number that a key or the embedding gives."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, ArraySummary):
        return tokens.length
    if isinstance(tokens, tuple):
        return len(tokens)
    embeddings = (tensor.shape[1] for tensor in header.tensors if _is_embedding(tensor))
    return keys.integer("vocab_size", next(embeddings, 0))


def _is_embedding(tensor: TensorInfo) -> bool:
    return tensor.name == "token_embd.weight" and len(tensor.shape) > 1


def _read_template(header: GgufHeader) -> TemplateCapabilities | None:
    text = header.chat_template
    return None if text is None else read_template(text)


def _projected(header: GgufHeader) -> tuple[str, ...]:
    """Return the kinds of input of a projector; one that says nothing is for images."""
    kinds = (("image", "clip.has_vision_encoder"), ("audio", "clip.has_audio_encoder"))
    return tuple(kind for kind, key in kinds if header.metadata.get(key)) or ("image",)
