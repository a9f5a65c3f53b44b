"""The widths of the tensors in a model's graph: elements per token, from the header alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain

from supervisor.core.memory.recurrent import state_parts
from supervisor.core.spec import ModelSpec

_PART = re.compile(r"\.ffn_(up|gate|gate_up|down)(|_exps|_shexp)\.weight$")

_LOW_RANK = re.compile(r"\.attn_(q_a|kv_a_mqa)\.weight$")


@dataclass(frozen=True, slots=True)
class Widths:
    """Elements per token unless said.

    Attributes:
        ffn: of the widest feed-forward part, in all its tensors that are alive at once: gate, up and their product;
            one and a half of a tensor that fuses gate and up; the one tensor where there is no gate.
        routed, routed_out: of the experts that are used: inside, counted as `ffn` is, and put out.
        shared: of the shared expert, counted as `ffn` is.
        queries, keys: of one layer's attention; `least_queries` of the narrowest.
        latent: of latent attention's queries, where they are spread out.
        indexer: of the indexer's queries.
        per_layer: of the per-layer embeddings of all layers.
        state: bytes of one copy of a recurrent layer's state.
        gated: queries come with gates, in one tensor of twice their width.
        squeezed: of queries or keys of low rank, before they are spread out.
        single_expert: just one of the experts is used.
        gate: the dense feed-forward part has a gate.
        sandwich: what attention puts out has a norm of its own.
    """

    embd: int
    ffn: int
    routed: int
    routed_out: int
    shared: int
    queries: int
    least_queries: int
    keys: int
    latent: int
    indexer: int
    per_layer: int
    vocab: int
    heads: int
    kv_heads: int
    state: int
    gated: bool
    squeezed: int
    single_expert: bool
    gate: bool
    sandwich: bool


def read_widths(spec: ModelSpec) -> Widths:
    heads = max(spec.n_head, default=0)
    used = max(spec.experts.used, default=0) if spec.experts else 0
    key = max(spec.head_k, spec.head_k_swa)
    ffn = _feed_forward(spec)
    routed = ffn.get("_exps", 0) * used if not spec.architecture.graph.idle_experts else 0
    if spec.architecture.graph.situ:
        routed += routed // 3
    return Widths(
        embd=spec.n_embd,
        ffn=ffn.get("", 0),
        routed=routed,
        routed_out=_put_out(spec) * used if routed else 0,
        shared=ffn.get("_shexp", 0),
        queries=max((_queries(spec, layer) for layer in range(spec.n_layer)), default=0),
        least_queries=min((_queries(spec, layer) for layer in range(spec.n_layer) if spec.n_head_kv[layer]), default=0),
        keys=max((_keys(spec, layer) for layer in range(spec.n_layer)), default=0),
        latent=heads * (2 * key + spec.head_k_mla) if spec.mla else 0,
        indexer=spec.indexer.heads * spec.indexer.head_dim if spec.indexer else 0,
        per_layer=spec.per_layer_embd * spec.n_layer,
        vocab=0 if spec.architecture.encoder else spec.n_vocab,
        heads=heads,
        kv_heads=max(spec.n_head_kv, default=0),
        state=4 * sum(state_parts(spec)),
        gated=_is_gated(spec),
        squeezed=_squeezed(spec),
        single_expert=used == 1,
        gate=_has_gate(spec),
        sandwich=any(".post_attention_norm." in tensor.name for tensor in chain(*spec.groups.one_of_each())),
    )


def _feed_forward(spec: ModelSpec) -> dict[str, int]:
    """Return the elements alive at once inside the widest part of each kind: dense, experts (each), shared expert."""
    shapes: dict[tuple[str, str], dict[str, int]] = {}
    for tensor in chain(*spec.groups.one_of_each(), spec.groups.loose):
        match = _PART.search(tensor.name) if ".ffn_" in tensor.name else None
        if match:
            block = tensor.name[: match.start()]
            inner = tensor.extent(0 if match[1] == "down" else 1)
            shapes.setdefault((block, match[2]), {})[match[1]] = inner
    found: dict[str, int] = {}
    for (_, kind), parts in shapes.items():
        found[kind] = max(found.get(kind, 0), _alive(parts))
    return found


def _has_gate(spec: ModelSpec) -> bool:
    names = [tensor.name for tensor in chain(*spec.groups.one_of_each()) if ".ffn_" in tensor.name]
    return not any(name.endswith(".ffn_up.weight") for name in names) or any(
        ".ffn_gate.weight" in name for name in names
    )


def _squeezed(spec: ModelSpec) -> int:
    return max(
        (
            tensor.extent(1)
            for tensor in chain(*spec.groups.one_of_each())
            if ".attn_" in tensor.name and _LOW_RANK.search(tensor.name)
        ),
        default=0,
    )


def _put_out(spec: ModelSpec) -> int:
    """Return the output width of one expert, from its tensors. It may be narrower than the residual stream."""
    found = [
        tensor.extent(1)
        for tensor in chain(*spec.groups.one_of_each(), spec.groups.loose)
        if tensor.name.endswith(".ffn_down_exps.weight")
    ]
    return max(found, default=spec.n_embd)


def _is_gated(spec: ModelSpec) -> bool:
    return any(
        tensor.name == f"blk.{layer}.attn_q.weight" and tensor.extent(1) >= 2 * _queries(spec, layer) > 0
        for layer in range(spec.n_layer)
        if not spec.mla
        for tensor in spec.groups.blocks[layer].tensors
    )


def _alive(parts: dict[str, int]) -> int:
    inner = parts.get("down", 0)
    widest = max((parts.get(part, 0) for part in ("up", "gate", "gate_up")), default=0)
    if widest >= 2 * inner > 0:
        return widest + inner
    return 3 * widest if "gate" in parts else widest


def _queries(spec: ModelSpec, layer: int) -> int:
    return spec.n_head[layer] * (spec.head_k_swa if spec.swa_layers[layer] else spec.head_k)


def _keys(spec: ModelSpec, layer: int) -> int:
    return spec.n_head_kv[layer] * (spec.head_k_swa if spec.swa_layers[layer] else spec.head_k)
