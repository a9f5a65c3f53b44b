"""What one way of starting the model takes on every device of a pool: demands, and what the planner adds to them.

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
from supervisor.core.memory import Demand, EstimateOptions, Refusal, Shape, WeightTable, demand, weight_table
from supervisor.core.plan.pools import Pool
from supervisor.core.plan.types import Budget, Budgets, PlanRequest


class Setting(NamedTuple):
    """One way of starting a model, but for its devices.

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


class Sizes:
    """Loads of one request. `part`/`whole`: weights as if the file were that share of its size."""

    def __init__(self, request: PlanRequest, budgets: Budgets, part: int = 1, whole: int = 1) -> None:
        self.request = request
        self.budgets = budgets
        self.n_places = request.spec.n_layer_all + 1
        self.projector_bytes = request.projector_bytes or request.options.mmproj or 0
        listed = request.explicit.devices
        self._names = tuple(budget.name for budget in budgets.devices) if listed is None else listed
        self._scale = part, whole
        self._tables: dict[bool, WeightTable] = {}
        self._demands: dict[tuple[object, ...], Demand | Refusal] = {}
        self._drafts: dict[tuple[int, bool, bool], Draft | Refusal] = {}
        self._loads: dict[tuple[object, ...], Load | Refusal] = {}

    def options(self, setting: Setting, cuda: bool) -> EstimateOptions:
        """Everything but devices, split and layers."""
        return replace(
            self.request.options,
            ctx_size=setting.ctx_size,
            cache_type_k=setting.kv[0],
            cache_type_v=setting.kv[1],
            n_cpu_moe=setting.n_cpu_moe,
            mmproj=self.projector_bytes or None,
            cuda=cuda or self.request.options.cuda,
            devices=self._names,
            tensor_split=(),
            n_gpu_layers=None,
        )

    def draft_options(self, ctx_size: int, cuda: bool) -> EstimateOptions:
        """The draft model has the context and the slots of the model itself, and cache types of its own."""
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
            cuda=cuda or options.cuda,
        )

    def table(self, cuda: bool = False) -> WeightTable:
        """Weights by layer."""
        found = self._tables.get(cuda)
        if found is None:
            options = self.options(Setting(0, ("f16", "f16"), 0, 0), cuda)
            found = weight_table(self.request.spec, options)
            if self._scale != (1, 1):
                found = found.scaled(*self._scale)
            self._tables[cuda] = found
        return found

    def refusal(self, setting: Setting) -> Refusal | None:
        """Why the engine would not start like this, or not with this draft model, whatever the memory."""
        found = self._demand(setting, "host", cuda=False)
        draft = self.draft(setting.ctx_size, cuda=False, on_host=True)
        return next((answer for answer in (found, draft) if isinstance(answer, Refusal)), None)

    def draft(self, ctx_size: int, cuda: bool, on_host: bool) -> Draft | Refusal:
        """The draft model, whole on one device or on the host."""
        spec = self.request.draft
        if spec is None:
            return Draft(0, 0)
        key = ctx_size, cuda, on_host
        if key not in self._drafts:
            options = self.draft_options(ctx_size, cuda)
            found = demand(spec, options, weight_table(spec, options), "host" if on_host else "solo")
            self._drafts[key] = found if isinstance(found, Refusal) else _draft(found, on_host)
        return self._drafts[key]

    def load(self, setting: Setting, shape: Shape, pool: Pool) -> Load | Refusal:
        """What a setting takes in a shape that it can have: `solo` and `pipeline` need all layers on devices."""
        key = setting, shape, pool.devices
        if key not in self._loads:
            self._loads[key] = self._load(setting, shape, pool)
        return self._loads[key]

    def _load(self, setting: Setting, shape: Shape, pool: Pool) -> Load | Refusal:
        found = self._demand(setting, shape, pool.cuda)
        draft = self.draft(setting.ctx_size, pool.cuda, shape == "host")
        if isinstance(found, Refusal):
            return found
        if isinstance(draft, Refusal):
            return draft
        budgets = [self.budgets.devices[device] for device in pool.devices]
        idle = tuple([self.reserve_of(budget) + found.named.get(budget.name, 0) for budget in budgets])
        factors = [self.factor_of(budget.name) for budget in budgets]
        fixed = found.copied
        devices = 0 if shape == "host" else draft.device + self.projector_bytes
        return Load(
            layers=list(accumulate(found.layers, initial=0)),
            first=tuple([own + fixed + ceil(found.first * factor) for own, factor in zip(idle, factors, strict=True)]),
            others=tuple([
                own + fixed + ceil(found.others * factor) for own, factor in zip(idle, factors, strict=True)
            ]),
            idle=idle,
            lead=tuple([devices + ceil(found.lead * factor) for factor in factors]),
            host=self._host(found, draft, setting.start, shape),
        )

    def _host(self, found: Demand, draft: Draft, start: int, shape: Shape) -> int:
        layers = sum(found.home[:start]) + sum(found.beside[start:]) + (found.copied if start else 0)
        compute = ceil(found.host_compute * self.factor_of(HOST))
        projector = self.projector_bytes if shape == "host" else 0
        fixed = found.host + found.output + draft.host + projector + self.reserve_of(self.budgets.host)
        return layers + compute + fixed

    def _demand(self, setting: Setting, shape: Shape, cuda: bool) -> Demand | Refusal:
        key = setting.ctx_size, setting.kv, setting.n_cpu_moe, shape, cuda
        found = self._demands.get(key)
        if found is None:
            options = self.options(setting, cuda)
            found = self._demands[key] = demand(self.request.spec, options, self.table(cuda), shape)
        return found

    def factor_of(self, name: str) -> float:
        """Measured / estimated bytes of the compute buffer on a device."""
        learned = self.request.learned
        return learned.compute.get(name, 1.0) if learned else 1.0

    def reserve_of(self, budget: Budget) -> int:
        """What is kept back for this engine on a device: what was measured, else the budget's reserve."""
        learned = self.request.learned
        return learned.overhead_bytes.get(budget.name, budget.reserve_bytes) if learned else budget.reserve_bytes


def _draft(found: Demand, on_host: bool) -> Draft:
    outside = found.host + found.host_compute + found.output
    if on_host:
        return Draft(0, sum(found.home) + found.copied + outside)
    return Draft(sum(found.layers) + found.first + found.copied, sum(found.beside) + outside)
