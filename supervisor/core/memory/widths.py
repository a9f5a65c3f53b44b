"""How wide the tensors of a model's graph are: elements per token, from the header alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from supervisor.core.memory.recurrent import state_parts
from supervisor.core.spec import ModelSpec

_FFN = re.compile(r"\.ffn_(?:up|gate|gate_up)\.weight$")
_SHARED = re.compile(r"\.ffn_(?:up|gate|gate_up)_shexp\.weight$")


@dataclass(frozen=True, slots=True)
class Widths:
    """Elements per token unless said.

    Attributes:
        ffn: of the widest feed-forward part; of a tensor that fuses gate and up, both.
        routed, routed_out: of the experts that are used, inside and put out.
        shared: of the shared expert.
        queries, keys: of one layer's attention.
        latent: of latent attention's queries, where they are spread out.
        indexer: of the indexer's queries.
        state: bytes of one copy of a recurrent layer's state.
    """

    embd: int
    ffn: int
    routed: int
    routed_out: int
    shared: int
    queries: int
    keys: int
    latent: int
    indexer: int
    vocab: int
    heads: int
    state: int


def read_widths(spec: ModelSpec) -> Widths:
    heads = max(spec.n_head, default=0)
    used = max(spec.experts.used, default=0) if spec.experts else 0
    expert_ff = max(spec.experts.ff, default=0) if spec.experts else 0
    key = max(spec.head_k, spec.head_k_swa)
    return Widths(
        embd=spec.n_embd,
        ffn=_widest(spec, _FFN) or (0 if spec.experts else max(spec.n_ff, default=0)),
        routed=expert_ff * used,
        routed_out=spec.n_embd * used,
        shared=_widest(spec, _SHARED),
        queries=max((_queries(spec, layer) for layer in range(spec.n_layer)), default=0),
        keys=max((_keys(spec, layer) for layer in range(spec.n_layer)), default=0),
        latent=heads * (2 * key + spec.head_k_mla) if spec.mla else 0,
        indexer=spec.indexer.heads * spec.indexer.head_dim if spec.indexer else 0,
        vocab=spec.n_vocab,
        heads=heads,
        state=4 * sum(state_parts(spec)),
    )


def _widest(spec: ModelSpec, pattern: re.Pattern[str]) -> int:
    return max((tensor.shape[-1] for tensor in spec.tensors if pattern.search(tensor.name)), default=0)


def _queries(spec: ModelSpec, layer: int) -> int:
    return spec.n_head[layer] * (spec.head_k_swa if spec.swa_layers[layer] else spec.head_k)


def _keys(spec: ModelSpec, layer: int) -> int:
    return spec.n_head_kv[layer] * (spec.head_k_swa if spec.swa_layers[layer] else spec.head_k)
