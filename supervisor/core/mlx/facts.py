"""The facts of an MLX model that decide its memory, from the headers of its files and its `config.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from supervisor.core.mlx.caches import CacheKind, LayerCache
from supervisor.core.mlx.config import ConfigReader, text_part
from supervisor.core.mlx.dropped import is_dropped
from supervisor.core.mlx.header import SafetensorsHeader, Tensor
from supervisor.core.mlx.table import caches_of, is_known
from supervisor.errors import ModelConfigError

_FLOATS: Final = {"F16": 2, "BF16": 2, "F32": 4}
_LONGEST_TYPE = 128  # characters
_GROUP = 64  # numbers of a quantised cache that share a scale
_EMBEDDINGS = (
    *("embed_tokens", "embeddings", "wte", "tok_embeddings", "embed_in", "word_embeddings", "embedding"),
    *("token_embd", "transformer.wte"),
)


@dataclass(frozen=True)
class MlxFacts:
    """What a plan needs of a model.

    Attributes:
        model_type: as `config.json` says.
        known: how it caches is known; else all its layers count as full attention.
        weights_bytes: of all tensors in its files that mlx-lm loads.
        dropped_bytes: of those that it leaves out: towers for images and sound, layers that only draft.
        caches: one for each cache of a sequence.
        dtype_bytes: of a number of its activations, and so of its caches.
        n_ctx_train: tokens it was trained for; 0 if it does not say.
        quantisation: bits of its weights; 0 where they are not quantised.
        chat_template: there is one.
        custom_code: its files ask for a Python file of their own, which is never run.
    """

    model_type: str
    known: bool
    weights_bytes: int
    caches: tuple[LayerCache, ...]
    dtype_bytes: int
    n_layer: int
    n_embd: int
    n_vocab: int
    n_head: int
    n_ff: int
    n_ctx_train: int = 0
    quantisation: int = 0
    chat_template: bool = False
    custom_code: bool = False
    dropped_bytes: int = 0
    tensor_types: tuple[tuple[str, int], ...] = ()

    @property
    def kinds(self) -> dict[str, int]:
        """The number of caches of each kind."""
        return dict(Counter(one.kind.value for one in self.caches))

    @property
    def quantisable(self) -> bool:
        """True if mlx-lm can keep its cache in fewer bits: all layers are full, their heads whole groups."""
        groups = (one.kind is CacheKind.FULL and one.head and not one.head % _GROUP for one in self.caches)
        return bool(self.caches) and all(groups)

    def only(self, kind: CacheKind) -> MlxFacts:
        """Return the same model with its caches of one kind alone."""
        return replace(self, caches=tuple(one for one in self.caches if one.kind is kind))


def read_facts(
    headers: Sequence[SafetensorsHeader], config: Mapping[str, Any], chat_template: bool = False
) -> MlxFacts:
    """Return the facts.

    Args:
        headers: of all its `model*.safetensors` files.
        config: its `config.json`.
        chat_template: there is one beside them.

    Raises ModelConfigError for a configuration that lacks what decides the model's memory.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise ModelConfigError("config.json lacks `model_type`: it is no model's.")
    if len(kind) > _LONGEST_TYPE or not kind.isprintable():  # it is shown
        raise ModelConfigError("config.json: `model_type` is no name; copy or download it again.")
    inner = text_part(config)
    tensors = [tensor for header in headers for tensor in header.tensors]
    tied = inner.flag("tie_word_embeddings")
    kept = [tensor for tensor in tensors if not is_dropped(tensor.name, inner.layers, tied)]
    heads = inner.integer("num_attention_heads", "n_heads", "n_head", "num_heads") or 0
    return MlxFacts(
        model_type=kind,
        known=is_known(kind),
        weights_bytes=sum(tensor.n_bytes for tensor in kept),
        caches=caches_of(kind, inner),
        dtype_bytes=_dtype_bytes(kept),
        n_layer=inner.layers,
        n_embd=inner.number("hidden_size", "d_model", "n_embd", "dim", "model_dim"),
        n_vocab=inner.number("vocab_size", default=0),
        n_head=heads,
        n_ff=_feed_forward(inner),
        n_ctx_train=inner.number(*_CONTEXT, default=0),
        quantisation=ConfigReader(config).within("quantization").number("bits", default=0),
        chat_template=chat_template,
        custom_code=bool(config.get("model_file")),
        dropped_bytes=sum(tensor.n_bytes for tensor in tensors) - sum(tensor.n_bytes for tensor in kept),
        tensor_types=tuple(Counter(tensor.dtype for tensor in kept).most_common()),
    )


_CONTEXT = ("max_position_embeddings", "max_seq_len", "max_sequence_length", "n_positions", "n_ctx", "seq_length")


def _feed_forward(inner: ConfigReader) -> int:
    """Return the widest feed-forward layer; four times the width where the configuration does not say."""
    value = inner.values.get("intermediate_size")
    if isinstance(value, list):
        return max((one for one in value if isinstance(one, int)), default=0)
    return inner.integer("intermediate_size", "ffn_dim", "n_inner", "d_inner") or 0


def _dtype_bytes(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of a number of the activations: that of the embeddings, which everything else is made of."""
    for tensor in tensors:
        path, _, last = tensor.name.rpartition(".")
        if path.rpartition(".")[2] in _EMBEDDINGS and last in {"weight", "scales"} and tensor.dtype in _FLOATS:
            return _FLOATS[tensor.dtype]
    found: Counter[int] = Counter()
    for tensor in tensors:
        if tensor.dtype in _FLOATS:
            found[_FLOATS[tensor.dtype]] += 1
    return found.most_common(1)[0][0] if found else 2
