"""Describe a model for a person, from its spec: plain dictionaries for `inspect` and for JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from supervisor.core.gguf import GgufHeader, GgufValue, TensorInfo
from supervisor.core.spec.model import ModelSpec

_BLOCK = re.compile(r"blk\.(\d+)\.")

VOCAB_ONLY = "vocabulary only, no weights"


def describe(header: GgufHeader, spec: ModelSpec) -> dict[str, object]:
    """Return the facts of a model; sizes in bytes, lengths in tokens. Keys without a value are left out."""
    architecture = spec.architecture
    facts: dict[str, object] = {
        "name": spec.name,
        "arch": architecture.name,
        "arch_known": architecture.known,
        "kind": VOCAB_ONLY if spec.vocab_only else "model",
        "layout": architecture.layout.value,
        "byte_order": header.byte_order,
        "n_params": sum(tensor.n_elements for tensor in header.tensors) or None,
        "tensor_bytes": tensor_bytes(header.tensors),
        "bits_per_weight": _bits_per_weight(header.tensors),
        "n_ctx_train": spec.n_ctx_train or None,
        "n_vocab": spec.n_vocab or None,
        "n_embd": spec.n_embd or None,
        "n_layer": spec.n_layer or None,
        "n_nextn": spec.n_nextn or None,
        "n_head": _same_or_list(spec.n_head),
        "n_head_kv": _same_or_list(spec.n_head_kv),
        "head_k": spec.head_k or None,
        "head_v": spec.head_v or None,
        "mla": spec.mla or None,
        "window": spec.window or None,
        "swa_layers": sum(spec.swa_layers) or None,
        "recurrent_layers": sum(spec.recurrent_layers) or None,
        "kv_layers": None if spec.vocab_only else sum(spec.kv_layers),
        "experts": asdict(spec.experts) if spec.experts else None,
        "indexer": asdict(spec.indexer) if spec.indexer else None,
        "rope": asdict(spec.rope) if spec.n_layer else None,
        "pooling": spec.pooling,
        "tied_embeddings": spec.tied_embeddings or None,
        "modalities": list(spec.modalities) or None,
        "template": asdict(spec.template) if spec.template else None,
        "tensor_types": type_counts(header.tensors) or None,
    }
    return {key: value for key, value in facts.items() if value is not None}


def plain_metadata(header: GgufHeader) -> dict[str, object]:
    """Return every key as it stands in the file; long arrays as `type[length]`."""
    return {key: _plain(value) for key, value in header.metadata.items()}


def tensor_summary(header: GgufHeader) -> list[dict[str, object]]:
    """Return bytes and tensors by layer and type: rows `{layer, type, tensors, bytes}`.

    Layer None = outside the layers.
    """
    rows: dict[tuple[int | None, str], list[TensorInfo]] = {}
    for tensor in header.tensors:
        rows.setdefault((layer_of(tensor.name), tensor.type_name), []).append(tensor)
    order = sorted(rows.items(), key=lambda item: (-1 if item[0][0] is None else item[0][0], item[0][1]))
    return [
        {"layer": layer, "type": kind, "tensors": len(tensors), "bytes": tensor_bytes(tuple(tensors))}
        for (layer, kind), tensors in order
    ]


def layer_of(name: str) -> int | None:
    """Return the layer in a tensor's name; None for one outside the layers."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else None


def tensor_bytes(tensors: tuple[TensorInfo, ...]) -> int:
    """Return the bytes of all tensors whose size is known."""
    return sum(tensor.n_bytes or 0 for tensor in tensors)


def type_counts(tensors: tuple[TensorInfo, ...]) -> dict[str, int]:
    """Return the number of tensors of each type, the commonest first."""
    return dict(Counter(tensor.type_name for tensor in tensors).most_common())


def _bits_per_weight(tensors: tuple[TensorInfo, ...]) -> float | None:
    weights = sum(tensor.n_elements for tensor in tensors if tensor.n_bytes is not None)
    return round(8 * tensor_bytes(tensors) / weights, 3) if weights else None


def _same_or_list(values: tuple[int, ...]) -> int | list[int] | None:
    if not values:
        return None
    return values[0] if len(set(values)) == 1 else list(values)


def _plain(value: GgufValue) -> object:
    if isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, tuple):
        return list(value)
    return f"{value.type}[{value.length}]"


def merge_labels(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return label and text of each fact, for a person: nested facts on one line."""
    return [(key.replace("_", " "), _text(value)) for key, value in facts.items()]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items() if item not in {None, False})
    if isinstance(value, (list, tuple)):
        shown = ", ".join(_text(item) for item in value[:12])
        return f"{shown}, … ({len(value)})" if len(value) > 12 else shown
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)
