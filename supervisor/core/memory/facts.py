"""The facts of a model that do not depend on its start: computed once per spec, so that many estimates are cheap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from supervisor.core.memory.backends import Backend
from supervisor.core.memory.cache import CacheRule
from supervisor.core.memory.layouts import draft_caches, main_caches
from supervisor.core.memory.recurrent import layer_states
from supervisor.core.memory.weights import Weights, sort_weights
from supervisor.core.memory.widths import Widths, read_widths
from supervisor.core.spec import Graph, Layout, ModelSpec


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one spec.

    Attributes:
        caches, draft: caches by rule, of the main context and of the one that drafts.
        states: bytes of a state per layer.
        weights: sorted tensors.
        widths: of the graph.
        kinds: what each layer is called.
        has_unknown_types: of tensors.
        projection: bytes of the largest matrix that makes queries or what attention puts out.
        has_plain_layers: a layer is attention after a norm, with a cache of its own, then feed-forward part or experts.
            Keys are at most half as wide as the residual stream, a feed-forward part two and a half times as wide or
            more, as in most published models: in others ggml finds other places for the same tensors.
    """

    spec: ModelSpec
    caches: tuple[CacheRule, ...]
    draft: tuple[CacheRule, ...]
    states: tuple[int, ...]
    weights: Weights
    widths: Widths
    kinds: tuple[str, ...]
    has_unknown_types: bool
    projection: int
    has_plain_layers: bool

    @property
    def largest_expert(self) -> int:
        """Bytes of the largest tensor of experts."""
        return max((layer.experts.largest for layer in self.weights.layers), default=0)


def is_plain(facts: Facts, traits: Backend) -> bool:
    """Return whether rows are known one by one: in such layers, in the order of the back end that was measured."""
    return traits.reorders and facts.has_plain_layers


_PLAIN = frozenset({Layout.PLAIN, Layout.ISWA})
_PROJECTIONS = ("attn_q.weight", "attn_qkv.weight", "attn_output.weight")
_KEPT = 8
_known: dict[int, Facts] = {}


def facts_of(spec: ModelSpec) -> Facts:
    """Return the facts, remembered for the specs seen last. Found by identity: comparing two specs takes longer."""
    found = _known.get(id(spec))
    if found is not None and found.spec is spec:
        return found
    found = _read(spec)
    while len(_known) >= _KEPT:
        _known.pop(next(iter(_known)), None)
    _known[id(spec)] = found
    return found


def _read(spec: ModelSpec) -> Facts:
    states = layer_states(spec)
    widths = read_widths(spec)
    return Facts(
        spec,
        caches=main_caches(spec),
        draft=draft_caches(spec),
        states=states,
        weights=sort_weights(spec),
        widths=widths,
        kinds=tuple(_kind(spec, layer, states[layer] > 0) for layer in range(spec.n_layer_all)),
        has_unknown_types=any(
            tensor.n_bytes is None for tensors in (*spec.groups.one_of_each(), spec.groups.loose) for tensor in tensors
        ),
        projection=_projection(spec),
        has_plain_layers=_has_plain_layers(spec, widths),
    )


def _projection(spec: ModelSpec) -> int:
    tensors = chain(*spec.groups.one_of_each())
    return max((tensor.n_bytes or 0 for tensor in tensors if tensor.name.endswith(_PROJECTIONS)), default=0)


def _has_plain_layers(spec: ModelSpec, widths: Widths) -> bool:
    plain = spec.architecture.layout in _PLAIN and spec.architecture.graph == Graph()
    plain = plain and all(spec.kv_layers[: spec.n_layer]) and not any(spec.recurrent_layers)
    plain = plain and not (widths.shared or widths.per_layer or widths.gated)
    if not plain or not any(".attn_norm." in tensor.name for tensor in spec.groups.blocks[0].tensors):
        return False
    return 2 * widths.keys <= widths.embd and 5 * widths.embd <= 2 * (max(widths.ffn, widths.routed) // 3)


def _kind(spec: ModelSpec, layer: int, has_state: bool) -> str:
    if layer >= spec.n_layer:
        return "nextn"
    if spec.recurrent_layers[layer]:
        return "parallel" if spec.kv_layers[layer] else "recurrent"
    if not spec.n_head_kv[layer] and not has_state:
        return "feed-forward"
    if spec.swa_layers[layer]:
        return "window"
    return "latent" if spec.mla else "attention"
