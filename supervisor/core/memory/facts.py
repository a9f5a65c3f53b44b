"""The facts of a model that do not depend on its start: computed once per spec, so that many estimates are cheap."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.memory.cache import CacheRule
from supervisor.core.memory.layouts import draft_caches, main_caches
from supervisor.core.memory.recurrent import layer_states
from supervisor.core.memory.weights import Weights, sort_weights
from supervisor.core.memory.widths import Widths, read_widths
from supervisor.core.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one spec: caches by rule, bytes of a state per layer, sorted tensors, widths of the graph."""

    spec: ModelSpec
    caches: tuple[CacheRule, ...]
    draft: tuple[CacheRule, ...]
    states: tuple[int, ...]
    weights: Weights
    widths: Widths
    kinds: tuple[str, ...]
    has_unknown_types: bool

    @property
    def largest_expert(self) -> int:
        """Bytes of the largest tensor of experts."""
        return max((layer.experts.largest for layer in self.weights.layers), default=0)


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
    return Facts(
        spec,
        caches=main_caches(spec),
        draft=draft_caches(spec),
        states=states,
        weights=sort_weights(spec),
        widths=read_widths(spec),
        kinds=tuple(_kind(spec, layer, states[layer] > 0) for layer in range(spec.n_layer_all)),
        has_unknown_types=any(
            tensor.n_bytes is None for tensors in (*spec.groups.one_of_each(), spec.groups.loose) for tensor in tensors
        ),
    )


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
