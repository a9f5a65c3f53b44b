"""What holds the memory of each device: models by part, other programs, what is kept back, what is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from supervisor.core.devices import Budget, Device
from supervisor.core.engine_output.footprint import DeviceFootprint
from supervisor.core.plan import DevicePlan, Placement, Seat
from supervisor.planning.lookout import Lookout
from supervisor.pool.lease import EngineStatus
from supervisor.pool.pool import Pool


@dataclass(frozen=True)
class Held:
    """What one engine holds on one device. Bytes.

    Attributes:
        model, engine: whose it is; None where the key that asks does not see the model.
        kv_bytes: the cache, recurrent state included. compute_bytes: buffers, those of the output included.
        other_bytes: projector and draft model.
        reserve_bytes: kept back for the engine's own runtime.
        measured: by the engine's own account; False: as planned.
    """

    model: str | None
    engine: int | None
    state: str
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    other_bytes: int
    reserve_bytes: int
    measured: bool


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one device, or of the host as `CPU`. Bytes.

    Attributes:
        free_bytes: as the driver, or the system, says now.
        others_bytes: of other programs.
        usable_bytes: for all engines together; what is missing to the total, beside others', is kept back.
    """

    name: str
    backend: str
    description: str
    total_bytes: int
    free_bytes: int
    others_bytes: int
    usable_bytes: int
    held: tuple[Held, ...]


@dataclass(frozen=True)
class MemoryShown:
    """Every device that counts, in llama.cpp's order, the host last."""

    devices: tuple[DeviceMemory, ...]


@dataclass(frozen=True)
class Memory:
    """Says what holds the memory. `sees`: whether a model may be named."""

    lookout: Lookout
    pool: Pool
    sees: Callable[[str], bool] = lambda model: True

    def limited(self, sees: Callable[[str], bool]) -> Memory:
        """Return the same for who sees only these models: what others hold has no name."""
        return replace(self, sees=sees)

    async def shown(self) -> dict[str, Any]:
        """Look at the machine; return `MemoryShown` as JSON."""
        sight = await self.lookout.look(self.pool)
        machine, budgets = sight.machine, sight.budgets
        described = {device.name: device for device in machine.devices}
        held = tuple(self._engines())
        rows = [_of_device(budget, described[budget.name], held) for budget in budgets.devices]
        rows.append(_row(budgets.host, "", machine.host.available_bytes, held))
        found: dict[str, Any] = _JSON.dump_python(MemoryShown(tuple(rows)), mode="json")
        return found

    def _engines(self) -> Iterator[tuple[str, Held]]:
        """Yield what every engine holds, with the device's name."""
        for model in dict.fromkeys(one.model for one in self.pool.residents()):
            for engine in self.pool.status(model).engines:
                yield from _held(model if self.sees(model) else None, engine)


def _held(model: str | None, engine: EngineStatus) -> Iterator[tuple[str, Held]]:
    plan = engine.view.plan
    if isinstance(plan, Seat):
        yield from _seated(model, engine, plan)
    if not isinstance(plan, Placement):
        return
    account = engine.ready.footprint if engine.ready else None
    for planned in plan.parts:
        parts: DevicePlan | DeviceFootprint = planned if account is None else account.on(planned.name)
        yield (
            planned.name,
            Held(
                model=model,
                engine=None if model is None else engine.view.engine,
                state=engine.view.state.value,
                weights_bytes=parts.weights_bytes,
                kv_bytes=parts.kv_bytes + parts.recurrent_bytes,
                compute_bytes=parts.compute_bytes + parts.output_bytes,
                other_bytes=parts.projector_bytes + parts.draft_bytes,
                reserve_bytes=planned.reserve_bytes,
                measured=account is not None,
            ),
        )


def _seated(model: str | None, engine: EngineStatus, plan: Seat) -> Iterator[tuple[str, Held]]:
    """Yield what an engine holds of whose memory no parts are known."""
    account = engine.ready.footprint if engine.ready else None
    held = plan.used_bytes if account is None else {**plan.used_bytes, **account.used_bytes}
    for name, size in held.items():
        yield (
            name,
            Held(
                model=model,
                engine=None if model is None else engine.view.engine,
                state=engine.view.state.value,
                weights_bytes=0,
                kv_bytes=0,
                compute_bytes=0,
                other_bytes=size,
                reserve_bytes=0,
                measured=account is not None,
            ),
        )


def _of_device(budget: Budget, device: Device, held: tuple[tuple[str, Held], ...]) -> DeviceMemory:
    return _row(budget, device.description, device.free_bytes, held)


def _row(budget: Budget, description: str, free: int, held: tuple[tuple[str, Held], ...]) -> DeviceMemory:
    return DeviceMemory(
        name=budget.name,
        backend=budget.backend,
        description=description,
        total_bytes=budget.total_bytes,
        free_bytes=free,
        others_bytes=budget.others_bytes,
        usable_bytes=budget.usable_bytes,
        held=tuple(one for name, one in held if name == budget.name),
    )


_JSON = TypeAdapter(MemoryShown)
