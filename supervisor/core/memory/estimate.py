"""Compose the estimate from its parts, for one way of starting the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.memory.buffers import allocate
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context, resolve_context
from supervisor.core.memory.facts import Facts, facts_of
from supervisor.core.memory.growth import host_growth
from supervisor.core.memory.notes import notes_on
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.output import output_bytes
from supervisor.core.memory.placement import HOST, place_layers
from supervisor.core.memory.refusals import refuse_model, refuse_options
from supervisor.core.memory.result import DeviceEstimate, LayerEstimate, MemoryEstimate, Refusal
from supervisor.core.memory.weights import PlacedWeights, place_weights
from supervisor.core.spec import ModelSpec


def estimate(spec: ModelSpec, options: EstimateOptions) -> MemoryEstimate | Refusal:
    """Return the bytes that llama-server allocates for this model with these options, or why it would not start."""
    refusal = refuse_model(spec)
    if refusal:
        return refusal
    facts = facts_of(spec)
    context = resolve_context(spec, options)
    return refuse_options(facts, options, context) or _compose(facts, options, context)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Bytes by device (the host last) and by layer."""

    caches: tuple[Cache, ...]
    weights: PlacedWeights
    kv_layers: list[int]
    state_layers: list[int]
    kv: list[int]
    states: list[int]
    compute: list[int]


def _compose(facts: Facts, options: EstimateOptions, context: Context) -> MemoryEstimate:
    spec = facts.spec
    parts = _allocate(facts, options, context)
    on_host = not any(parts.compute[:-1])
    layers = zip(facts.kinds, parts.weights.layers, parts.kv_layers, parts.state_layers, strict=True)
    return MemoryEstimate(
        arch=spec.architecture.name,
        n_ctx=context.n_ctx,
        n_ctx_seq=context.cells,
        n_seq=context.n_seq,
        weights_bytes=sum(parts.weights.devices),
        kv_bytes=sum(parts.kv),
        recurrent_bytes=sum(parts.states),
        compute_bytes=parts.compute[-1] if on_host else sum(parts.compute[:-1]),
        host_compute_bytes=0 if on_host else parts.compute[-1],
        output_bytes=output_bytes(spec, options, context),
        projector_bytes=options.mmproj or 0,
        layers=tuple(LayerEstimate(index, *layer) for index, layer in enumerate(layers)),
        non_layer_weights_bytes=parts.weights.outside,
        host_growth=host_growth(facts, options, context, parts.caches, parts.weights),
        devices=_devices(options, parts),
        notes=notes_on(facts, options, context),
    )


def _devices(options: EstimateOptions, parts: _Parts) -> tuple[DeviceEstimate, ...]:
    columns = zip(parts.weights.devices, parts.kv, parts.states, parts.compute, strict=True)
    return tuple(DeviceEstimate(name, *column) for name, column in zip((*options.devices, HOST), columns, strict=True))


def _allocate(facts: Facts, options: EstimateOptions, context: Context) -> _Parts:
    spec = facts.spec
    places = place_layers(spec, options)
    homes = places if options.offload_kv else (-1,) * len(places)
    weights = place_weights(spec, facts.weights, options, places)
    buffers = allocate(facts, options, context, places)
    compute = buffers.compute
    compute[0] += buffers.lead
    kv_layers = buffers.kv_layers(spec.n_layer_all)
    state_layers = [size * context.states for size in facts.states]
    return _Parts(
        buffers.caches,
        weights,
        kv_layers,
        state_layers,
        kv=_by_device(kv_layers, homes, len(options.devices)),
        states=_by_device(state_layers, homes, len(options.devices)),
        compute=compute,
    )


def _by_device(sizes: Sequence[int], homes: Sequence[int], n_devices: int) -> list[int]:
    found = [0] * (n_devices + 1)
    for size, home in zip(sizes, homes, strict=False):  # the last home is the output layer's
        found[home] += size
    return found
