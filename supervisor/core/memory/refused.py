"""What a back end does not compute: the host does, for layers that are on a device.

A graph is cut before and after such a node, and its inputs are copied to the host (`ggml_backend_sched_split_graph`).
With several devices that take turns every input exists four times, for each layer anew, and so does what comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.spec import ModelSpec, RecurrentFamily

_F32 = 4


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that a device leaves to the host, in bytes: what goes there, what is put out, weights among the inputs."""

    inputs: int = 0
    output: int = 0
    weights: int = 0


def refused_bytes(
    facts: Facts, options: EstimateOptions, context: Context, layers: Sequence[int], copies: int
) -> int:
    """Return a device's bytes in a pipeline: what comes back from the host, for each of its layers."""
    node = _node(facts, options, context)
    return copies * node.output * _count(facts.spec, options, layers)


def refused_host_bytes(
    facts: Facts, options: EstimateOptions, context: Context, places: Sequence[int], copies: int
) -> int:
    """Return the host's bytes for the layers of the devices; two rows of the residual stream are not needed then."""
    node = _node(facts, options, context)
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


def _node(facts: Facts, options: EstimateOptions, context: Context) -> _Node:
    spec, widths, traits = facts.spec, facts.widths, options.traits
    row = _F32 * context.n_tokens
    if _scans_older(spec, options):
        states = widths.state * context.states
        inner = spec.ssm.inner
        return _Node(row * (2 * inner + 2 * spec.ssm.group * spec.ssm.state) + states, row * inner + states)
    if spec.mla and context.streams > 1 and not traits.streams:
        weights = spec.n_head[0] * spec.kv_lora_rank * spec.head_v_mla * _F32
        return _Node(row * widths.heads * spec.kv_lora_rank, row * widths.heads * spec.head_v_mla, weights)
    if not traits.precise_experts and spec.architecture.name == "mistral4" and widths.routed:
        largest = max((layer.experts.largest for layer in facts.weights.layers), default=0)
        return _Node(row * widths.routed // 3, row * widths.routed_out, largest)
    return _Node()


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
