"""Machines and models for the planner's tests, and a second opinion on its plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.plan import Budget, Budgets, DoesNotFit, Placement, PlanRequest, Policy, Resident, plan
from supervisor.core.spec import ModelSpec
from tests.core.memory.support import spec_of

__all__ = ["GIB", "breaches", "fails", "machine", "places", "spec_of"]

GIB = 1 << 30


def machine(
    *devices: float, host: float, backend: str = "cuda", reserve: float = 0.5, shares_host: bool = False
) -> Budgets:
    """Usable GiB of each device and of the host."""
    return Budgets(
        tuple(
            Budget(
                f"{backend.upper()}{number}", backend, int(size * GIB), int(size * GIB), int(reserve * GIB), shares_host
            )
            for number, size in enumerate(devices)
        ),
        Budget("CPU", "cpu", int(host * GIB), int(host * GIB), GIB // 8),
    )


def places(
    request: PlanRequest, budgets: Budgets, residents: Sequence[Resident] = (), policy: Policy | None = None
) -> Placement:
    """The placement, which keeps to every budget."""
    found = plan(request, budgets, residents, policy or Policy())
    assert isinstance(found, Placement), found
    assert breaches(found, request, budgets, residents) == []
    return found


def fails(
    request: PlanRequest, budgets: Budgets, residents: Sequence[Resident] = (), policy: Policy | None = None
) -> DoesNotFit:
    found = plan(request, budgets, residents, policy or Policy())
    assert isinstance(found, DoesNotFit), found.why
    return found


def breaches(found: Placement, request: PlanRequest, budgets: Budgets, residents: Iterable[Resident]) -> list[str]:
    """Where a plan takes more than is left, computed anew from what the engine will be told."""
    staying = [resident for resident in residents if resident.engine not in found.evict]
    by_name = {budget.name: budget for budget in (*budgets.devices, budgets.host)}
    held = {name: sum(resident.used_bytes.get(name, 0) for resident in staying) for name in by_name}
    taken = _taken(found, request, by_name)
    for name, size in taken.items():
        held[name] += size
    held["CPU"] += sum(held[budget.name] for budget in budgets.devices if budget.shares_host)
    return _shared_workers(taken, by_name, staying) + [
        f"{name}: {held[name]} of {by_name[name].usable_bytes}"
        for name in taken
        if held[name] > by_name[name].usable_bytes
    ]


def _shared_workers(taken: Iterable[str], by_name: dict[str, Budget], staying: Iterable[Resident]) -> list[str]:
    """RPC workers that would serve two engines."""
    others = {name for resident in staying for name in resident.used_bytes}
    workers = [
        {by_name[name].endpoint or name for name in names if by_name[name].backend == "rpc"}
        for names in (taken, others)
    ]
    return [f"{worker} serves two engines" for worker in workers[0] & workers[1]]


def _taken(found: Placement, request: PlanRequest, by_name: dict[str, Budget]) -> dict[str, int]:
    listed = found.devices
    if found.split_mode == "none":
        listed = (listed[found.main_gpu],) if listed else ()
    options = replace(
        request.options,
        devices=listed,
        tensor_split=tuple(map(float, found.tensor_split)),
        n_gpu_layers=found.n_gpu_layers,
        n_cpu_moe=found.n_cpu_moe,
        ctx_size=found.options.ctx_size,
        cache_type_k=found.options.cache_type_k,
        cache_type_v=found.options.cache_type_v,
        backend=",".join(sorted({by_name[name].backend for name in listed})),
        mmproj=None,
    )
    whole = estimated(request.spec, options)
    used = listed if found.n_gpu_layers else ()
    learned = request.learned
    sizes = {}
    for device in whole.devices:
        factor = learned.compute.get(device.name, 1.0) if learned else 1.0
        reserve = by_name[device.name].reserve_bytes
        overhead = learned.overhead_bytes.get(device.name, reserve) if learned else reserve
        own = device.weights_bytes + device.kv_bytes + device.recurrent_bytes
        sizes[device.name] = own + ceil(device.compute_bytes * factor) + overhead
    if not used:  # a list of devices without layers
        sizes = {"CPU": sizes["CPU"]}
    sizes["CPU"] += whole.output_bytes - found.paged_bytes
    assert found.paged_bytes <= found.parts[-1].weights_bytes
    first = used[0] if used else "CPU"
    sizes[first] += request.projector_bytes
    if request.draft:
        whole_list = ",".join(found.devices) if found.split_mode == "none" else first
        assert found.draft_device == (whole_list if used else None)
        drafting = EstimateOptions(
            ctx_size=found.options.ctx_size,
            parallel=request.options.parallel,
            kv_unified=request.options.kv_unified,
            batch_size=request.options.batch_size,
            ubatch_size=request.options.ubatch_size,
            devices=used[:1],
            backend=options.backend,
        )
        drafted = estimated(request.draft, drafting)
        for device in drafted.devices:
            sizes[device.name] += device.total_bytes
        sizes["CPU"] += drafted.output_bytes
    return sizes


def estimated(spec: ModelSpec, options: EstimateOptions) -> MemoryEstimate:
    found = estimate(spec, options)
    assert isinstance(found, MemoryEstimate), found
    return found
