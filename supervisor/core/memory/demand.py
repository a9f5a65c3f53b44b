"""The memory that a model takes before it is decided which device holds which layer.

`estimate` answers for one placement; who looks for a placement would have to ask it hundreds of times. A `Demand`
answers for all placements of one shape at once: bytes of each layer, and what a device takes beside its layers. Added
up for a placement it is never less than the estimate. It is more by copies of rope tables on devices that hold the
output layer alone, by masks on devices whose layers need none of them, in pipelines of models whose layers share caches
(Gemma 3n, Gemma 4), and by CUDA's copy of experts where it is not needed after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from supervisor.core.memory.buffers import Buffers, allocate
from supervisor.core.memory.context import Context, resolve_context
from supervisor.core.memory.facts import Facts, facts_of
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.output import output_bytes
from supervisor.core.memory.refusals import refuse_model, refuse_options
from supervisor.core.memory.result import Refusal
from supervisor.core.memory.weights import Part, Router, loaded_layers, router
from supervisor.core.spec import ModelSpec

Shape = Literal["solo", "pipeline", "mixed", "host"]
"""All layers on one device; on several; some on the host and the others on devices; all on the host."""

_ANYWHERE = 1 << 20  # a device's number that no option names
_ALL = 1 << 30


@dataclass(frozen=True, slots=True)
class WeightTable:
    """Weights in bytes by layer, the output layer last, as they are on a device and on the host.

    Attributes:
        rest, experts: on a device; `home_*` on the host.
        largest: of the tensors of a layer's experts.
        input: what is on the host always.
        copied: what every device that holds layers has.
        named: what overrides send to a device, by its name; to the host, as `CPU`.
    """

    rest: tuple[int, ...]
    experts: tuple[int, ...]
    home_rest: tuple[int, ...]
    home_experts: tuple[int, ...]
    largest: tuple[int, ...]
    input: int
    copied: int
    named: Mapping[str, int]

    @property
    def has_experts(self) -> bool:
        return any(self.largest)

    def scaled(self, part: int, whole: int) -> WeightTable:
        """Return the same model in another quantisation, whose file has another size."""

        def of(sizes: Iterable[int]) -> tuple[int, ...]:
            return tuple(-(-size * part // whole) for size in sizes)

        return WeightTable(
            rest=of(self.rest),
            experts=of(self.experts),
            home_rest=of(self.home_rest),
            home_experts=of(self.home_experts),
            largest=of(self.largest),
            input=-(-self.input * part // whole),
            copied=self.copied,
            named=dict(zip(self.named, of(self.named.values()), strict=True)),
        )


@dataclass(frozen=True, slots=True)
class ContextDemand:
    """Bytes of contexts, caches and compute buffers, for every placement of one shape.

    Attributes:
        n_ctx, n_ctx_seq: as in `MemoryEstimate`.
        cached: caches and states of each layer; the output layer, which has none, is the last.
        first, others: compute buffers: of the first device that holds layers, of each after it.
        lead: on the first device of the list, to compute with weights that stay on the host.
        host_compute, output: on the host.
    """

    n_ctx: int
    n_ctx_seq: int
    cached: Sequence[int]
    first: int
    others: int
    lead: int
    host_compute: int
    output: int


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes of the whole model, for every placement of one shape.

    Attributes:
        layers: what goes with each layer to its device; the output layer is the last.
        beside: what each layer leaves on the host though it is on a device.
        home: what each layer takes on the host.
        lead: what the first device of the list holds to compute with the host's experts.
        copied: on every device that holds layers, and on the host if it holds some.
        named: fixed by overrides, by device.
        host: on the host always.
        context: compute buffers and the like.
    """

    layers: Sequence[int]
    beside: Sequence[int]
    home: Sequence[int]
    lead: int
    copied: int
    named: Mapping[str, int]
    host: int
    context: ContextDemand


def refuse(spec: ModelSpec, options: EstimateOptions) -> Refusal | None:
    """Return why the engine would not start with these options, as `estimate` would say.

    No context changes the answer.
    """
    return refuse_model(spec) or refuse_options(facts_of(spec), options, resolve_context(spec, options))


def weight_table(spec: ModelSpec, options: EstimateOptions) -> WeightTable:
    """Return the weights.

    Only `backend`, `override_tensors`, `devices` (for overrides) and `speculative` of the options count.
    """
    facts = facts_of(spec)
    route = router(options, spec)
    weights = facts.weights
    rows = loaded_layers(spec, weights, options)
    named: dict[str, int] = {}
    rests = [_own(row.rest, route, options, named) for row in rows]
    experts = [_own(row.experts, route, options, named) for row in rows]
    output = _own(weights.output, route, options, named)
    tied = _own(weights.tied, route, options, named)
    return WeightTable(
        rest=(*(own[0] for own in rests), output[0] + tied[0]),
        experts=(*(own[0] for own in experts), 0),
        home_rest=(*(own[1] for own in rests), output[1]),
        home_experts=(*(own[1] for own in experts), 0),
        largest=(*(row.experts.largest for row in rows), 0),
        input=_own(weights.input, route, options, named)[1],
        copied=_own(weights.copied, route, options, named)[0],
        named=named,
    )


def _own(part: Part, route: Router, options: EstimateOptions, named: dict[str, int]) -> tuple[int, int]:
    """Return the bytes of a part that go where its layer goes, on a device and on the host; add the rest to `named`."""
    if route.is_whole(part):
        return part.bytes_on(0, route.cuda), part.n_bytes
    found = (0, 0)
    for piece, target in route.split(part, _ANYWHERE):
        if target == _ANYWHERE:
            found = piece.bytes_on(0, route.cuda), piece.n_bytes
        else:
            name = options.devices[target] if target >= 0 else "CPU"
            named[name] = named.get(name, 0) + piece.bytes_on(target, route.cuda)
    return found


def context_demand(spec: ModelSpec, options: EstimateOptions, shape: Shape) -> ContextDemand:
    """Return the demand of the contexts, for options that are not refused.

    Their layers and split do not count, of `n_cpu_moe` only whether it is 0.
    """
    facts = facts_of(spec)
    context = resolve_context(spec, options)
    buffers = _buffers(facts, options, context, shape)
    caches = buffers.kv_layers(spec.n_layer_all)
    states = context.states
    compute = buffers.compute
    others = 0 if shape == "host" else compute[min(1, len(compute) - 2)]
    if shape == "pipeline":
        others = max(others, _between(facts, options, context))
    return ContextDemand(
        n_ctx=context.n_ctx,
        n_ctx_seq=context.cells,
        cached=[*(kv + state * states for kv, state in zip(caches, facts.states, strict=True)), 0],
        first=compute[0] if shape != "host" else 0,
        others=others,
        lead=buffers.lead,
        host_compute=compute[-1],
        output=output_bytes(spec, options, context),
    )


def demand(table: WeightTable, context: ContextDemand, options: EstimateOptions) -> Demand:
    """Return the demand of weights and contexts. Only the options count that say where experts and caches live."""
    cached = context.cached
    moved = min(_ALL if options.cpu_moe else options.n_cpu_moe, len(cached))
    nothing = (0,) * len(cached)
    experts = (*nothing[:moved], *table.experts[moved:])
    left = (*table.home_experts[:moved], *nothing[moved:])
    near, far = (cached, nothing) if options.offload_kv else (nothing, cached)
    return Demand(
        layers=[sum(parts) for parts in zip(table.rest, experts, near, strict=True)],
        beside=[sum(parts) for parts in zip(left, far, strict=True)],
        home=[sum(parts) for parts in zip(table.home_rest, table.home_experts, cached, strict=True)],
        lead=context.lead,
        copied=table.copied,
        named=table.named,
        host=table.input + table.named.get("CPU", 0),
        context=context,
    )


def _between(facts: Facts, options: EstimateOptions, context: Context) -> int:
    """Return the largest compute buffer of a device between two others.

    It grows with the layers that the device has, and depends on whose caches they use: so all but the first layer are
    its own, or those from the first or the last one on that owns a cache.
    """
    total = facts.spec.n_layer_all + 1
    owners = [layer for layer, owns in enumerate(facts.spec.kv_layers) if owns] or [0]
    chosen = replace(options, devices=("first", "other", "more"))
    found = 0
    for begin in {1, max(1, owners[0]), max(1, owners[-1])}:
        places = (0,) * begin + (1,) * (total - 1 - begin) + (2,)
        found = max(found, allocate(facts, chosen, context, places, everywhere=True).compute[1])
    return found


def _buffers(facts: Facts, options: EstimateOptions, context: Context, shape: Shape) -> Buffers:
    """Return the buffers of a placement that stands for its shape."""
    total = facts.spec.n_layer_all + 1
    if shape == "host":
        return allocate(facts, replace(options, devices=()), context, (-1,) * total)
    if shape == "pipeline":
        cut = 1 + max((layer for layer, owns in enumerate(facts.spec.kv_layers) if owns), default=0)
        places = (0,) * cut + (1,) * (total - cut)  # where layers share caches, the second device borrows one
        return allocate(facts, replace(options, devices=("first", "other", "more")), context, places, everywhere=True)
    places = (-1 if shape == "mixed" else 0,) + (0,) * (total - 1)
    return allocate(facts, replace(options, devices=("first",)), context, places, everywhere=True)
