"""Compute buffers: the bytes that each device, and the host, reserves for one micro-batch.

Every buffer holds the masks and a few rows of the residual stream; a device that computes layers holds the widest
place of the graph too. How many rows of the stream depends on how the graph is cut between devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from supervisor.core.memory.cache import Cache
from supervisor.core.memory.carried import carries
from supervisor.core.memory.chunks import in_chunks
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.fallback import scores_at_border, scores_on_host
from supervisor.core.memory.graph import core_of, input_bytes
from supervisor.core.memory.graph_sparse import leaf_bytes
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.refused import refused_nodes
from supervisor.core.spec import Layout, ModelSpec

_MARGIN_BYTES = 104858  # 0.1 MiB: small inputs, padding between tensors
_MARGIN_PARTS = 5000  # and 0.02 %
_F16_BYTES = 2
_STREAMS_MADE = 28  # rows of four residual streams in four copies where they are made, and
_STREAMS_SENT = 48  # where they arrive, twice
_SCAN_ROWS = 4  # of Mamba's layers in a pipeline, where nodes are computed ahead
_STATE_ROWS = 3  # of states on the host
_PARALLEL_ROWS = 5  # of parallel blocks that are computed ahead while the host attends
_PARTIAL = 32  # tokens and groups of threads that Metal keeps partial results of


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut of a graph: copies of the inputs, rows of the residual stream per place, the share of the core.

    Attributes:
        first, others: rows on the first device that is used, and on those after it.
        scans: rows more beside Mamba's layers, on the first device and on those after it.
        amid: of these, rows more after the first of three devices or more. Of some architectures `Graph.scan_rows`
            counts instead of both.
        states: copies of a recurrent state that travel.
        per_layer: copies of the per-layer embeddings that travel.
        device_core, host_core: what is computed there: all, the experts, what is left without them, or nothing.
    """

    copies: int
    first: int
    others: int
    host: int
    scans: tuple[int, int] = (0, 0)
    amid: int = 0
    states: int = 0
    per_layer: int = 0
    device_core: str = "all"
    host_core: str = ""


_ON_HOST = Cut(copies=1, first=0, others=0, host=5, host_core="all")
_ON_ONE_DEVICE = Cut(copies=1, first=4, others=4, host=4)
_CARRIED = Cut(copies=1, first=7, others=7, host=4, scans=(4, 4), per_layer=2, host_core="scans")
_CARRIED_EXPERTS = Cut(copies=1, first=5, others=5, host=4, device_core="bare")
_CARRIED_SOME = Cut(copies=1, first=9, others=9, host=4)
_BOTH = Cut(copies=1, first=6, others=6, host=5, per_layer=2, host_core="all")
_HOST_CACHE = Cut(copies=1, first=8, others=8, host=5, states=12, per_layer=5)
_SOME_EXPERTS = Cut(copies=1, first=9, others=9, host=5, host_core="experts")
_NO_EXPERTS = Cut(copies=1, first=9, others=9, host=5, device_core="rest", host_core="experts")
_MASKED = frozenset({"attention", "window"})
_PIPELINE = Cut(copies=4, first=17, others=12, host=10, scans=(8, 20), amid=6)


def compute_buffers(
    facts: Facts,
    options: EstimateOptions,
    context: Context,
    caches: Sequence[Cache],
    places: Sequence[int],
    everywhere: bool = False,
) -> list[int]:
    """Return bytes per device, the host last. `everywhere`: as if every device had layers of every kind."""
    row, cut = 4 * context.n_tokens * facts.widths.embd, _cut(options, context, places)
    if scores_at_border(facts, options, places):
        context, cut = replace(context, flash_attn=False), replace(cut, host_core="all")
    core = core_of(facts.spec, facts.widths, context, caches, options.traits)
    inputs = input_bytes(facts.spec, context, caches)
    refused = refused_nodes(facts, options, context, caches)
    known = facts.spec.architecture.graph.scan_rows if cut is _PIPELINE else None
    scans, amid = known or cut.scans, cut.amid if len(options.devices) > 2 and not known else 0
    used = sorted({place for place in places if place >= 0})
    found = [0] * (len(options.devices) + 1)
    for device in used:
        rows, more = (cut.first, scans[0]) if device == used[0] else (cut.others, scans[1] + amid)
        ahead = _SCAN_ROWS + facts.spec.architecture.graph.ahead_rows
        more += ahead if more and cut is _PIPELINE and options.traits.reorders else 0
        beside = core.scans + (rows + more) * row if more and core.scans else 0
        near = caches if everywhere or cut is _HOST_CACHE else _attended(facts.spec, caches, places, device)
        rows += _PARALLEL_ROWS if cut is _HOST_CACHE and _is_ahead(facts.spec, options) else 0
        size = max(getattr(core, cut.device_core) + rows * row, beside)
        size += cut.copies * input_bytes(facts.spec, context, near)
        size += leaf_bytes(facts.spec, context, _here(places, device, everywhere))
        size += cut.states * facts.widths.state + _per_layer_bytes(facts, context, cut)
        size += refused.on_device(_here(places, device, everywhere), cut.copies)
        if cut is _PIPELINE:
            size += _choice_bytes(facts.spec, context, caches) if device != used[0] else 0
            size += _lent_bytes(facts, context, caches, places, device)
            last = device == used[-1] and not everywhere
            size += _shift_bytes(facts, context, row, 0 if device == used[0] else 1 + last)
        size += _attention_bytes(facts, options, context, caches)
        found[device] = _with_margin(in_chunks(facts, options.traits, context, caches, size))
    host = cut.host * row + (getattr(core, cut.host_core) if cut.host_core else 0)
    host += _host_rows(facts.spec, cut, bool(used)) * row
    if used and facts.widths.per_layer:
        host += 4 * context.n_tokens * facts.widths.per_layer + row
    if used:
        host = refused.on_host(places, cut.copies, host + cut.copies * inputs) - cut.copies * inputs
    host += cut.states * facts.widths.state + (
        _beside_host_cache(facts, options, context, caches) if cut is _HOST_CACHE else 0
    )
    if (-1 in places[:-1] and cut.host_core != "scans") or cut is _HOST_CACHE:
        host += leaf_bytes(facts.spec, context, _here(places, -1, everywhere or cut is _HOST_CACHE))
    found[-1] = _with_margin(host + cut.copies * inputs)
    sent = sent_to(options) - set(used)  # such a device computes with its tensors: at most what the widest place does
    return [max(found) if device in sent else size for device, size in enumerate(found)]


def sent_to(options: EstimateOptions) -> set[int]:
    """Return the devices to which the user sends tensors by name, whatever layers they hold."""
    return {options.devices.index(place) for _, place in options.override_tensors if place in options.devices}


def _host_rows(spec: ModelSpec, cut: Cut, used: bool) -> int:
    """Return rows more on the host beside devices: of states and of whole queries, keys and values, of positions."""
    carried = any(spec.recurrent_layers) or spec.architecture.graph.whole_qkv
    positions = any(tensor.name.startswith("position_embd") for tensor in spec.groups.loose)
    carried = carried or bool(spec.architecture.graph.ahead_rows)
    least = max(_STATE_ROWS, spec.architecture.graph.ahead_rows)
    return (least if cut is _CARRIED and carried else 0) + (1 if used and positions else 0)


def _is_ahead(spec: ModelSpec, options: EstimateOptions) -> bool:
    return spec.architecture.graph.parallel and options.traits.reorders


def _here(places: Sequence[int], device: int, everywhere: bool) -> list[int]:
    """Return the layers on a device; all of them where the placement stands for others."""
    return [layer for layer, place in enumerate(places[:-1]) if everywhere or place == device]


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
    return _gathered(facts, context) + scores


def _gathered(facts: Facts, context: Context) -> int:
    """Return the bytes of convolution inputs that all Mamba layers gather on the host, if their states are there."""
    spec, ssm = facts.spec, facts.spec.ssm
    if not spec.architecture.graph.gathers_convolutions:
        return 0
    return 4 * context.n_tokens * (ssm.inner + 2 * ssm.group * ssm.state) * sum(spec.recurrent_layers)


def _shift_bytes(facts: Facts, context: Context, row: int, place: int) -> int:
    """Return the bytes of token shifts on a device; `place`: 0 for the first one, 2 for the last one, 1 between."""
    rows = facts.spec.architecture.graph.shift_rows
    return rows[place] * row + facts.widths.state * context.states if rows else 0


def _per_layer_bytes(facts: Facts, context: Context, cut: Cut) -> int:
    return cut.per_layer * 4 * context.n_tokens * facts.widths.per_layer


def _choice_bytes(spec: ModelSpec, context: Context, caches: Sequence[Cache]) -> int:
    """Return what travels of an indexer in a pipeline: a mask or a choice of cells for layers that have none."""
    indexer, layout = spec.indexer, spec.architecture.layout
    if indexer is None or not (layout is Layout.MSA or not all(indexer.layers[: spec.n_layer])):
        return 0
    cells = max((cache.cells for cache in caches), default=0)
    return _PIPELINE.copies * 4 * context.n_tokens * (3 * cells // 2 + spec.hyper_connections * spec.n_embd)


def _lent_bytes(facts: Facts, context: Context, caches: Sequence[Cache], places: Sequence[int], device: int) -> int:
    """Return what travels for the layers on a device in a pipeline of layers that share caches (Gemma 3n, Gemma 4).

    Each layer has copies of its own: of the cache that it borrows from a layer elsewhere, and of its embeddings.
    """
    spec = facts.spec
    if not facts.widths.per_layer and all(spec.kv_layers[: spec.n_layer]):
        return 0
    lenders = {spec.swa_layers[layer]: layer for layer, owns in enumerate(spec.kv_layers) if owns}
    first = max(lenders.values(), default=0) + 1
    sizes: dict[int, int] = {}
    for cache in caches:
        sizes |= cache.layer_bytes()
    here = [layer for layer in range(spec.n_layer) if places[layer] == device]
    shares = [layer for layer in here if layer >= first and spec.n_head_kv[layer] and not spec.recurrent_layers[layer]]
    borrowed = [lenders.get(spec.swa_layers[layer], -1) for layer in shares]
    far = sum(sizes.get(lender, 0) for lender in borrowed if lender >= 0 and places[lender] != device)
    row, copies = 4 * context.n_tokens, _PIPELINE.copies
    if device == places[0]:
        made = (copies - 1) * facts.widths.per_layer + (
            _STREAMS_MADE if spec.architecture.graph.altup else 0
        ) * facts.widths.embd
    else:
        made = copies * spec.per_layer_embd * len(here)
        made += (_STREAMS_SENT if spec.architecture.graph.altup else 0) * facts.widths.embd
    return copies * far + row * made


def _cut(options: EstimateOptions, context: Context, places: Sequence[int]) -> Cut:
    if max(places) < 0:
        return _ON_HOST
    carried = carries(options, context, places)
    if min(places) < 0:
        return _CARRIED if carried else _BOTH
    if not options.offload_kv:
        return _HOST_CACHE
    if options.cpu_moe:
        return _CARRIED_EXPERTS if carried else _NO_EXPERTS
    if options.n_cpu_moe > 0 or options.override_tensors:
        return _CARRIED_SOME if carried else _SOME_EXPERTS
    return _ON_ONE_DEVICE if len(options.devices) == 1 else _PIPELINE


def _with_margin(size: int) -> int:
    return size + _MARGIN_BYTES + size // _MARGIN_PARTS


def _attention_bytes(facts: Facts, options: EstimateOptions, context: Context, caches: Sequence[Cache]) -> int:
    """Return what flash attention has beside its output: F16 copies of a layer's cache, partial results."""
    traits = options.traits
    if not context.flash_attn:
        return 0
    copied = [_copy(cache, traits.copies) for cache in caches if cache.name != "index" and traits.copies is not None]
    partial = 4 * min(context.n_tokens, _PARTIAL) * _PARTIAL * (facts.widths.queries + 2 * facts.widths.heads)
    return max(copied, default=0) + (partial if traits.pads_attention else 0)


def _copy(cache: Cache, kept: frozenset[str]) -> int:
    keys = 0 if cache.type_k in kept else max(row.k_width for row in cache.layers)
    values = 0 if cache.type_v in kept else max(row.v_width for row in cache.layers)
    return _F16_BYTES * cache.cells * cache.streams * (keys + values)
