"""Compute buffers: the bytes that each device, and the host, reserves for one micro-batch.

Every buffer holds the masks and a few rows of the residual stream; a device that computes layers holds the widest
place of the graph too. How many rows of the stream depends on how the graph is cut between devices (`cuts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from supervisor.core.memory.attention_extra import attention_bytes
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.chunks import in_chunks
from supervisor.core.memory.context import Context
from supervisor.core.memory.cuts import PIPELINE, Cut, cut_of
from supervisor.core.memory.facts import Facts, is_plain
from supervisor.core.memory.fallback import scores_at_border, scores_on_host
from supervisor.core.memory.graph import Core, core_of, input_bytes
from supervisor.core.memory.graph_sparse import leaf_bytes
from supervisor.core.memory.lent import lent_bytes
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.pipeline import travelling_bytes
from supervisor.core.memory.refused import Refused, refused_nodes
from supervisor.core.spec import ModelSpec

_MASKED = frozenset({"attention", "window"})
_MARGIN_BYTES = 104858  # 0.1 MiB: small inputs, padding between tensors
_MARGIN_PARTS = 5000  # and 0.02 %
_INPUT_ROWS = 2  # embeddings of tokens and of images
_HOST_ROWS = 4  # and what was looked up; later a layer's keys and values are there, on their way to its cache
_SCAN_ROWS = 4  # of Mamba's layers in a pipeline, where nodes are computed ahead
_STATE_ROWS = 3  # of states on the host
_PARALLEL_ROWS = 5  # of parallel blocks that are computed ahead while the host attends


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph that is cut between devices and the host: what every device's buffer is computed from."""

    facts: Facts
    options: EstimateOptions
    context: Context
    caches: Sequence[Cache]
    places: Sequence[int]
    everywhere: bool
    cut: Cut
    core: Core
    refused: Refused

    @property
    def row(self) -> int:
        """Bytes of a row of the residual stream."""
        return 4 * self.context.n_tokens * self.facts.widths.embd

    def here(self, device: int, everywhere: bool = False) -> list[int]:
        """Return the layers on a device; all of them where the placement stands for others."""
        layers = enumerate(self.places[:-1])
        return [layer for layer, place in layers if self.everywhere or everywhere or place == device]


def compute_buffers(
    facts: Facts,
    options: EstimateOptions,
    context: Context,
    caches: Sequence[Cache],
    places: Sequence[int],
    everywhere: bool = False,
) -> list[int]:
    """Return bytes per device, the host last. `everywhere`: as if every device had layers of every kind."""
    cut = cut_of(options, context, places, is_plain(facts, options.traits))
    if scores_at_border(facts, options, places, everywhere):
        context, cut = replace(context, flash_attn=False), replace(cut, host_core="all")
    core = core_of(facts.spec, facts.widths, context, caches, options.traits)
    refused = refused_nodes(facts, options, context, caches)
    graph = _Graph(facts, options, context, caches, places, everywhere, cut, core, refused)
    used = sorted({place for place in places if place >= 0})
    found = [0] * (len(options.devices) + 1)
    for device in used:
        size = _device_bytes(graph, device, device == used[0])
        found[device] = _with_margin(in_chunks(facts, options.traits, context, caches, size))
    found[-1] = _with_margin(_host_bytes(graph, bool(used)))
    sent = sent_to(options) - set(used)  # such a device computes with its tensors: at most what the widest place does
    return [max(found) if device in sent else size for device, size in enumerate(found)]


def sent_to(options: EstimateOptions) -> set[int]:
    """Return the devices to which the user sends tensors by name, whatever layers they hold."""
    return {options.devices.index(place) for _, place in options.override_tensors if place in options.devices}


def _device_bytes(graph: _Graph, device: int, is_first: bool) -> int:
    facts, context, cut, caches = graph.facts, graph.context, graph.cut, graph.caches
    near = [] if cut.lends and scores_on_host(facts, graph.options) else caches
    if not graph.everywhere and not cut.lends:
        near = _attended(facts.spec, caches, graph.places, device)
    size = _widest(graph, device, is_first)
    size += cut.copies * input_bytes(facts.spec, context, near)
    size += leaf_bytes(facts.spec, context, graph.here(device))
    size += cut.states * facts.widths.state + cut.per_layer * 4 * context.n_tokens * facts.widths.per_layer
    size += graph.refused.on_device(graph.here(device), cut.copies)
    if cut is PIPELINE:
        size += travelling_bytes(facts, context, caches, graph.places, device, graph.everywhere)
    return size + attention_bytes(facts, graph.options, context, caches)


def _widest(graph: _Graph, device: int, is_first: bool) -> int:
    """Return the widest place of a device, with the rows of the residual stream that are beside it."""
    spec, cut, core = graph.facts.spec, graph.cut, graph.core
    known = spec.architecture.graph.scan_rows if cut is PIPELINE else None
    scans, amid = known or cut.scans, cut.amid if len(graph.options.devices) > 2 and not known else 0
    rows, more = (cut.first, scans[0]) if is_first else (cut.others, scans[1] + amid)
    if more and cut is PIPELINE and graph.options.traits.reorders:
        more += _SCAN_ROWS + spec.architecture.graph.ahead_rows
    beside = core.scans + (rows + more) * graph.row if more and core.scans else 0
    rows += 1 if cut.is_carried and any(spec.recurrent_layers) else 0
    rows += _PARALLEL_ROWS if cut.lends and _is_ahead(spec, graph.options) else 0
    core_bytes: int = getattr(core, cut.device_core)
    if not graph.options.offload_kv and not scores_on_host(graph.facts, graph.options):
        known_rows = is_first and is_plain(graph.facts, graph.options.traits)
        core_bytes = lent_bytes(graph.facts, graph.context, graph.caches, core_bytes, graph.here(device), known_rows)
    return max(core_bytes + rows * graph.row, beside)


def _host_bytes(graph: _Graph, used: bool) -> int:
    facts, context, cut, caches = graph.facts, graph.context, graph.cut, graph.caches
    inputs = cut.copies * input_bytes(facts.spec, context, caches)
    core = getattr(graph.core, cut.host_core) if cut.host_core else 0
    fresh = 2 * 4 * context.n_tokens * facts.widths.keys if cut.lends or -1 in graph.places[:-1] else 0
    rows = max(cut.host * graph.row + core, _HOST_ROWS * graph.row, _INPUT_ROWS * graph.row + fresh)
    size = inputs + rows + _host_rows(facts.spec, cut, used) * graph.row
    if used and facts.widths.per_layer:
        size += 4 * context.n_tokens * facts.widths.per_layer + graph.row
    if used:
        size = graph.refused.on_host(graph.places, cut.copies, size)
    size += cut.states * facts.widths.state
    if cut.lends:
        size += _beside_host_cache(facts, graph.options, context, caches)
    if cut.lends or (-1 in graph.places[:-1] and not cut.is_carried):
        size += leaf_bytes(facts.spec, context, graph.here(-1, cut.lends))
    return size


def _host_rows(spec: ModelSpec, cut: Cut, used: bool) -> int:
    """Return rows more on the host beside devices: of states and of whole queries, keys and values, of positions."""
    carried = any(spec.recurrent_layers) or spec.architecture.graph.whole_qkv
    positions = any(tensor.name.startswith("position_embd") for tensor in spec.groups.loose)
    carried = carried or bool(spec.architecture.graph.ahead_rows)
    least = max(_STATE_ROWS, spec.architecture.graph.ahead_rows)
    return (least if cut.is_carried and carried else 0) + (1 if used and positions else 0)


def _is_ahead(spec: ModelSpec, options: EstimateOptions) -> bool:
    return spec.architecture.graph.parallel and options.traits.reorders


def _attended(spec: ModelSpec, caches: Sequence[Cache], places: Sequence[int], device: int) -> Sequence[Cache]:
    """Return the caches whose masks a device needs: those of its layers; all where layers read each other's caches."""
    own = all(spec.kv_layers[layer] or spec.recurrent_layers[layer] for layer in range(spec.n_layer))
    if not own or any(cache.name not in _MASKED for cache in caches):
        return caches
    here = {layer for layer, place in enumerate(places) if place == device}
    return [cache for cache in caches if any(row.layer in here for row in cache.layers)]


def _beside_host_cache(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> int:
    """Return what the host has beside caches that it keeps for the devices.

    With recurrent layers, whose states are there too, llama.cpp may find flash attention on the host and turn it off.
    """
    scores = 0
    if scores_on_host(facts, options) and caches:
        cells = max(cache.cells for cache in caches)
        scores = 4 * context.n_tokens * cells * (facts.widths.heads + 1) + 4 * context.n_tokens * facts.widths.queries
        scores += _values(caches)
    return _gathered(facts, context) + scores


def _values(caches: Sequence[Cache]) -> int:
    """Return the bytes of a layer's values in the order that scores want, if the cache was made for flash attention."""
    return max((2 * row.v_width * cache.cells * cache.streams for cache in caches for row in cache.layers), default=0)


def _gathered(facts: Facts, context: Context) -> int:
    """Return the bytes of convolution inputs that all Mamba layers gather on the host, if their states are there."""
    spec, ssm = facts.spec, facts.spec.ssm
    if not spec.architecture.graph.gathers_convolutions:
        return 0
    return 4 * context.n_tokens * (ssm.inner + 2 * ssm.group * ssm.state) * sum(spec.recurrent_layers)


def _with_margin(size: int) -> int:
    return size + _MARGIN_BYTES + size // _MARGIN_PARTS
