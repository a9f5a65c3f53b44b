"""The bytes of one way of starting the model on every device of a pool: demands, and what the planner adds to them.

Added are the reserve per engine (or the overhead that was measured), the projector, the draft model, and what was
learned about compute buffers. Demands are remembered, since a search asks for the same ones over and over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from supervisor.core.devices import HOST
from supervisor.core.memory import (
    ContextDemand,
    Demand,
    EstimateOptions,
    Refusal,
    Shape,
    WeightTable,
    context_demand,
    demand,
    refuse,
    weight_table,
)
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.types import Budget, Budgets, PlanRequest

_NOWHERE = ""  # no device's name


class Setting(NamedTuple):
    """A way of starting the model, except for its devices.

    Attributes:
        ctx_size: tokens of all slots.
        kv: cache types of keys and values.
        n_cpu_moe: experts of so many layers are on the host.
        start: so many layers are on the host; all and the output layer: the host alone.
    """

    ctx_size: int
    kv: tuple[str, str]
    n_cpu_moe: int
    start: int


@dataclass(frozen=True, slots=True)
class Load:
    """Bytes of a setting, by device of a pool.

    Attributes:
        layers: prefix sums: item i is what the layers before i take on devices.
        first, others: what a device takes beside its layers, as the first that holds some, and after it.
        idle: what a device takes that is in the engine's list and holds no layers.
        lead: what the first device of the list takes on top.
        host: of the host, its reserve included.
    """

    layers: Sequence[int]
    first: tuple[int, ...]
    others: tuple[int, ...]
    idle: tuple[int, ...]
    lead: tuple[int, ...]
    host: int


class Draft(NamedTuple):
    """The draft model's bytes, on its device and on the host."""

    device: int
    host: int


class _Common(NamedTuple):
    """The part of a load that is the same for all pools."""

    demand: Demand
    layers: list[int]
    lead: int
    host: int


class Sizes:
    """The loads of one request.

    Args:
        scale: weights as if the file were that share of its size: part, whole.
        paged: weights on the host need no room: they are mapped from the file, and nothing is repacked.
    """

    def __init__(
        self, request: PlanRequest, budgets: Budgets, scale: tuple[int, int] = (1, 1), *, paged: bool = False
    ) -> None:
        self.request = request
        self.budgets = budgets
        self.paged = paged
        self.n_places = request.spec.n_layer_all + 1
        self.projector_bytes = request.projector_bytes or request.options.mmproj or 0
        listed = request.explicit.devices
        self._names = tuple(budget.name for budget in budgets.devices) if listed is None else listed
        self._scale = scale
        self._tables: dict[str, WeightTable] = {}
        self._contexts: dict[tuple[object, ...], ContextDemand] = {}
        self._drafts: dict[tuple[int, str, bool], Draft] = {}
        self._commons: dict[tuple[Setting, Shape, str], _Common] = {}
        self._loads: dict[tuple[Setting, Shape, tuple[int, ...]], Load] = {}

    def options(self, setting: Setting, backend: str) -> EstimateOptions:
        """Return everything but devices, split and layers."""
        return replace(
            self.request.options,
            ctx_size=setting.ctx_size,
            cache_type_k=setting.kv[0],
            cache_type_v=setting.kv[1],
            n_cpu_moe=setting.n_cpu_moe,
            mmproj=self.projector_bytes or None,
            repack=self.request.options.repack and not self.paged,
            backend=backend or self.request.options.backend,
            devices=self._names,
            tensor_split=(),
            n_gpu_layers=None,
        )

    def draft_options(self, ctx_size: int, backend: str) -> EstimateOptions:
        """Return the draft model's options: context and slots of the model itself, cache types of its own."""
        options = self.request.options
        return EstimateOptions(
            ctx_size=ctx_size,
            parallel=options.parallel,
            kv_unified=options.kv_unified,
            batch_size=options.batch_size,
            ubatch_size=options.ubatch_size,
            flash_attn=options.flash_attn,
            swa_full=options.swa_full,
            cache_type_k=options.cache_type_k_draft,
            cache_type_v=options.cache_type_v_draft,
            backend=backend or options.backend,
        )

    def table(self, backend: str) -> WeightTable:
        """Return weights by layer."""
        found = self._tables.get(backend)
        if found is None:
            options = self.options(Setting(0, ("f16", "f16"), 0, 0), backend)
            found = weight_table(self.request.spec, options)
            if self._scale != (1, 1):
                found = found.scaled(*self._scale)
            self._tables[backend] = found
        return found

    def refusal(self, kv: tuple[str, str]) -> Refusal | None:
        """Return the reason, if any, why the engine would not start with these cache types or this draft model."""
        draft = self.request.draft
        found = refuse(self.request.spec, self.options(Setting(0, kv, 0, 0), backend=""))
        return found or (refuse(draft, self.draft_options(0, backend="")) if draft else None)

    def beside(self, place: str, leads: bool, draft: Draft) -> tuple[int, int]:
        """Return the bytes of the projector and of the draft model on a device, or the projector's on the host.

        `leads`: they are here unless the user wants them elsewhere.
        """
        explicit = self.request.explicit
        projector = self.projector_bytes if _is_home(explicit.projector_device, place, leads) else 0
        return projector, draft.device if _is_home(explicit.draft_device, place, leads) else 0

    def draft(self, ctx_size: int, backend: str, on_host: bool) -> Draft:
        """Return the draft model's bytes, whole on one device or on the host; there too if the user wants it there."""
        spec = self.request.draft
        if spec is None:
            return Draft(0, 0)
        on_host = on_host or self.request.explicit.draft_device == HOST
        key = ctx_size, backend, on_host
        if key not in self._drafts:
            options = self.draft_options(ctx_size, backend)
            context = context_demand(spec, options, "host" if on_host else "solo")
            self._drafts[key] = _draft(demand(weight_table(spec, options), context, options), on_host)
        return self._drafts[key]

    def load(self, setting: Setting, shape: Shape, pool: Pool) -> Load:
        """Return the load of a setting in a shape that it can have.

        `solo` and `pipeline` need all layers on devices.
        """
        key = setting, shape, pool.devices
        if key not in self._loads:
            self._loads[key] = self._load(setting, shape, pool)
        return self._loads[key]

    def _load(self, setting: Setting, shape: Shape, pool: Pool) -> Load:
        common = self._common(setting, shape, pool.backend)
        found, context = common.demand, common.demand.context
        budgets = [self.budgets.devices[device] for device in pool.devices]
        draft = self.draft(setting.ctx_size, pool.backend, shape == "host")
        idle = [
            self.reserve_of(budget) + found.named.get(budget.name, 0) + sum(self.beside(budget.name, False, draft))
            for budget in budgets
        ]
        factors = [self.factor_of(budget.name) for budget in budgets]
        beside = list(zip(idle, factors, strict=True))
        sent = {place for _, place in self.request.options.override_tensors}
        widest = max(context.first, context.others, context.host_compute)
        return Load(
            layers=common.layers,
            first=tuple([own + found.copied + ceil(context.first * factor) for own, factor in beside]),
            others=tuple([own + found.copied + ceil(context.others * factor) for own, factor in beside]),
            idle=tuple([
                own + (ceil(widest * factor) if budget.name in sent else 0)
                for budget, (own, factor) in zip(budgets, beside, strict=True)
            ]),
            lead=tuple([common.lead + ceil(found.lead * factor) for factor in factors]),
            host=common.host,
        )

    def _common(self, setting: Setting, shape: Shape, backend: str) -> _Common:
        key = setting, shape, backend
        if key not in self._commons:
            options = self.options(setting, backend)
            found = demand(self.table(backend), self._context(setting, shape, options), options)
            draft = self.draft(setting.ctx_size, backend, shape == "host")
            self._commons[key] = _Common(
                found,
                layers=list(accumulate(found.layers, initial=0)),
                lead=0 if shape == "host" else sum(self.beside(_NOWHERE, True, draft)),
                host=self._host(found, draft, setting.start, shape) - self._mapped(found, setting, backend),
            )
        return self._commons[key]

    def _host(self, found: Demand, draft: Draft, start: int, shape: Shape) -> int:
        layers = sum(found.home[:start]) + sum(found.beside[start:]) + (found.copied if start else 0)
        compute = ceil(found.context.host_compute * self.factor_of(HOST))
        projector, _ = self.beside(HOST, shape == "host", draft)
        fixed = found.host + found.context.output + draft.host + projector + self.reserve_of(self.budgets.host)
        return layers + compute + fixed

    def _mapped(self, found: Demand, setting: Setting, backend: str) -> int:
        """Return the bytes of weights on the host that need no room there."""
        if not self.paged:
            return 0
        table, start = self.table(backend), setting.start
        moved = self.n_places if self.request.options.cpu_moe else setting.n_cpu_moe
        layers = sum(table.home_rest[:start]) + sum(table.home_experts[: max(start, moved)])
        return layers + found.host + (found.copied if start else 0)

    def _context(self, setting: Setting, shape: Shape, options: EstimateOptions) -> ContextDemand:
        key = setting.ctx_size, setting.kv, setting.n_cpu_moe > 0, shape, options.backend
        if key not in self._contexts:
            self._contexts[key] = context_demand(self.request.spec, options, shape)
        return self._contexts[key]

    def factor_of(self, name: str) -> float:
        """Return measured / estimated bytes of the compute buffer on a device."""
        learned = self.request.learned
        return learned.compute.get(name, 1.0) if learned else 1.0

    def reserve_of(self, budget: Budget) -> int:
        """Return the bytes kept back for this engine on a device: measured, else its reserve; and what it lacked."""
        learned, short = self.request.learned, self.request.short.get(budget.name, 0)
        known = learned.overhead_bytes.get(budget.name, budget.reserve_bytes) if learned else budget.reserve_bytes
        return known + short


def _is_home(wanted: str | None, place: str, leads: bool) -> bool:
    return leads if wanted is None else wanted == place


def _draft(found: Demand, on_host: bool) -> Draft:
    context = found.context
    outside = found.host + context.host_compute + context.output
    if on_host:
        return Draft(0, sum(found.home) + found.copied + outside)
    return Draft(sum(found.layers) + context.first + found.copied, sum(found.beside) + outside)
