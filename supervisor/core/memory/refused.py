"""What a back end does not compute: the host does, for layers that are on a device.

A graph is cut before and after such a node, and its inputs are copied to the host (`ggml_backend_sched_split_graph`).
With several devices that take turns every input exists four times, for each layer anew, and so does what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.spec import ModelSpec, RecurrentFamily

_F32 = 4
_MIXED = 2  # of attention, and of the feed-forward part


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that a device leaves to the host, in bytes: what goes there, what is put out, weights among the inputs."""

    inputs: int = 0
    output: int = 0
    weights: int = 0


def refused_bytes(
    facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache], layers: Sequence[int], copies: int
) -> int:
    """Return a device's bytes for what comes back from the host; in a pipeline, for each of its layers."""
    node = _node(facts, options, context, caches)
    count = _count(facts.spec, options, layers)
    return copies * node.output * count if copies > 1 else 0


def refused_host_bytes(
    facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache], places: Sequence[int], copies: int
) -> int:
    """Return the host's bytes for the layers of the devices; two rows of the residual stream are not needed then."""
    node = _node(facts, options, context, caches)
    layers = [layer for layer, place in enumerate(places[:-1]) if place >= 0]
    count = _count(facts.spec, options, layers)
    if not count:
        return 0
    several = count if copies > 1 else 1
    return several * copies * (node.inputs + node.weights) + node.output


def _count(spec: ModelSpec, options: EstimateOptions, layers: Sequence[int]) -> int:
    if _scans_older(spec, options):
        return sum(spec.recurrent_layers[layer] for layer in layers if layer < spec.n_layer)
    return sum(layer < spec.n_layer for layer in layers)


def _node(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> _Node:
    spec, widths, traits = facts.spec, facts.widths, options.traits
    row = _F32 * context.n_tokens
    if _scans_older(spec, options):
        states = widths.state * context.states
        inner, mixed = spec.ssm.inner, 2 * spec.ssm.state * max(spec.ssm.group, 1)
        viewed = 2 * (mixed + spec.ssm.dt_rank)
        return _Node(row * (2 * inner + viewed) + states, row * inner + states)
    if spec.mla and context.streams > 1 and not traits.streams:
        weights = spec.n_head[0] * spec.kv_lora_rank * spec.head_v_mla * _F32
        return _Node(row * widths.heads * spec.kv_lora_rank, row * widths.heads * spec.head_v_mla, weights)
    if spec.indexer and spec.indexer.kpool and traits.index_head not in {None, spec.indexer.head_dim}:
        pools = max((cache.cells for cache in caches), default=0) // spec.indexer.kpool
        return _Node(row * (pools + widths.indexer), row * (2 * pools + widths.queries))
    if _mixes_alone(spec, options):
        return _Node(output=_MIXED * row * widths.embd)
    if not traits.precise_experts and spec.architecture.name == "mistral4" and widths.routed:
        largest = max((layer.experts.largest for layer in facts.weights.layers), default=0)
        return _Node(row * widths.routed // 3, row * widths.routed_out, largest)
    return _Node()


def _mixes_alone(spec: ModelSpec, options: EstimateOptions) -> bool:
    """Return whether residual streams are mixed in a number that the back end does not know."""
    return options.traits.mixes is not None and spec.architecture.graph.mixed_streams not in {0, options.traits.mixes}


def _scans_older(spec: ModelSpec, options: EstimateOptions) -> bool:
    """Return whether the host computes the scans of Mamba's layers."""
    traits = options.traits
    match spec.architecture.recurrent:
        case RecurrentFamily.MAMBA:
            return not traits.older_scans
        case RecurrentFamily.MAMBA2:
            return traits.scans is not None and spec.ssm.state not in traits.scans
        case _:
            return False
