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
from supervisor.core.memory.graph import input_bytes
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.scans import scans_on_host
from supervisor.core.spec import ModelSpec

_F32 = 4
_MIXED = 4  # times that a layer mixes residual streams
_AROUND = 2  # rows of the residual stream beside such a node, and with an indexer
_AROUND_INDEX = 3


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that a device leaves to the host.

    Attributes:
        inputs, output, weights: bytes; `weights` are among what is copied to the host.
        kept: bytes on a device that is alone.
        attending, recurrent: of which layers it is.
    """

    inputs: int = 0
    output: int = 0
    weights: int = 0
    kept: int = 0
    attending: bool = True
    recurrent: bool = True

    def count(self, spec: ModelSpec, layers: Sequence[int]) -> int:
        """Return how many of these layers have it."""
        own = [layer for layer in layers if layer < spec.n_layer]
        return sum(self.recurrent if spec.recurrent_layers[layer] else self.attending for layer in own)


@dataclass(frozen=True, slots=True)
class Refused:
    """The nodes of a model that its devices leave to the host."""

    spec: ModelSpec
    nodes: tuple[_Node, ...]
    row: int
    inputs: int

    def on_device(self, layers: Sequence[int], copies: int) -> int:
        """Return a device's bytes for what comes back; in a pipeline, for each of its layers."""
        return sum(
            copies * node.output * node.count(self.spec, layers) if copies > 1 else node.kept for node in self.nodes
        )

    def on_host(self, places: Sequence[int], copies: int, other: int) -> int:
        """Return the host's bytes; `other`: without such nodes."""
        layers = [layer for layer, place in enumerate(places[:-1]) if place >= 0]
        found = [(node, node.count(self.spec, layers)) for node in self.nodes]
        if copies > 1:
            return other + sum(count * copies * (node.inputs + node.weights) + node.output for node, count in found)
        spec = self.spec
        late = self.inputs if any(spec.recurrent_layers) or spec.indexer or spec.window else 0
        around = _AROUND + (_AROUND_INDEX if spec.indexer else 0)
        taken = [node.inputs + node.weights + node.output for node, count in found if count]
        return max([other, *(size + around * self.row + late for size in taken)])


def refused_nodes(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> Refused:
    """Return the nodes that devices of this back end do not compute."""
    row = _F32 * context.n_tokens
    nodes = (
        _scans(facts, options, context),
        _spread(facts, options, context),
        _precise(facts, options, context),
        _index(facts, options, context, caches),
        _mixes(facts, options, context),
        _large(facts, options, context),
    )
    found = tuple(node for node in nodes if node)
    inputs = input_bytes(facts.spec, context, caches) if found else 0
    return Refused(facts.spec, found, row * facts.widths.embd, inputs)


def _scans(facts: Facts, options: EstimateOptions, context: Context) -> _Node | None:
    """Mamba's scans, of the older kind or with states of another size."""
    spec = facts.spec
    if not scans_on_host(spec, options.traits):
        return None
    row, states = _F32 * context.n_tokens, facts.widths.state * context.states
    viewed = 2 * (2 * spec.ssm.state * max(spec.ssm.group, 1) + spec.ssm.dt_rank)
    output = row * spec.ssm.inner + states
    return _Node(row * (2 * spec.ssm.inner + viewed) + states, output, attending=all(spec.recurrent_layers))


def _spread(facts: Facts, options: EstimateOptions, context: Context) -> _Node | None:
    """Latent attention's values, spread out with one matrix for all slots."""
    spec, heads = facts.spec, facts.widths.heads
    if options.traits.streams or not spec.mla or context.streams == 1:
        return None
    row = _F32 * context.n_tokens
    weights = heads * spec.kv_lora_rank * spec.head_v_mla * _F32
    inputs, output = row * heads * spec.kv_lora_rank, row * heads * spec.head_v_mla
    return _Node(inputs, output, weights, recurrent=False)


def _precise(facts: Facts, options: EstimateOptions, context: Context) -> _Node | None:
    """Experts in F32."""
    wanted = facts.spec.architecture.graph.precise_experts and facts.widths.routed
    if options.traits.precise_experts or not wanted:
        return None
    row = _F32 * context.n_tokens
    return _Node(
        row * facts.widths.routed // 3,
        row * facts.widths.routed_out,
        facts.largest_expert + 4 * row * facts.widths.embd,
    )


def _index(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> _Node | None:
    """An indexer's scores of pooled keys."""
    indexer, head = facts.spec.indexer, options.traits.index_head
    if indexer is None or not indexer.kpool or head in {None, indexer.head_dim}:
        return None
    row = _F32 * context.n_tokens
    pools = max((cache.cells for cache in caches), default=0) // indexer.kpool
    kept = row * (3 * pools + 2 * facts.widths.embd)
    return _Node(row * (pools + facts.widths.indexer), row * 2 * pools, kept=kept, recurrent=False)


def _mixes(facts: Facts, options: EstimateOptions, context: Context) -> _Node | None:
    """Residual streams, in a number that has no kernel."""
    streams = facts.spec.architecture.graph.mixed_streams
    if options.traits.mixes is None or streams in {0, options.traits.mixes}:
        return None
    return _Node(output=_MIXED * _F32 * context.n_tokens * facts.widths.embd)


def _large(facts: Facts, options: EstimateOptions, context: Context) -> _Node | None:
    """Experts in tensors that are too large: they stay on the host anyway."""
    if options.traits.largest is None or facts.largest_expert <= options.traits.largest:
        return None
    row = _F32 * context.n_tokens
    return _Node(0, row * max(2 * facts.widths.routed // 3, facts.widths.routed_out))
