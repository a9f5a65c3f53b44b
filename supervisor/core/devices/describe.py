"""Describe a machine as JSON, for programs: `supervisor devices --json` and `GET /api/v1/devices`."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.devices.budget import Budget, Budgets
from supervisor.core.devices.model import Device, Machine


def as_json(machine: Machine, budgets: Budgets) -> dict[str, object]:
    """Return `host`, `devices` and `problems`; sizes are bytes. The keys are documented in docs/rest.md."""
    by_name = {budget.name: budget for budget in budgets.devices}
    return {
        "host": {
            "total_bytes": machine.host.total_bytes,
            "available_bytes": machine.host.available_bytes,
            **_budget(budgets.host),
        },
        "devices": [{**_device(device), **_budget(by_name.get(device.name))} for device in machine.devices],
        "problems": problems_json(machine),
    }


def problems_json(machine: Machine) -> list[dict[str, str]]:
    """Return the probes that failed, as `probe` and `message`."""
    return [{"probe": problem.probe, "message": problem.message} for problem in machine.problems]


def _device(device: Device) -> Mapping[str, object]:
    return {
        "name": device.name,
        "backend": device.backend,
        "description": device.description,
        "index": device.index,
        "uuid": device.uuid,
        "pci": device.pci,
        "compute_capability": device.compute_capability,
        "endpoint": device.endpoint,
        "shares_host": device.shares_host,
        "total_bytes": device.total_bytes,
        "free_bytes": device.free_bytes,
        "utilization_percent": device.utilization_percent,
        "temperature_c": device.temperature_c,
        "processes": [{"pid": pid, "bytes": used} for pid, used in device.processes.items()],
    }


def _budget(budget: Budget | None) -> Mapping[str, object]:
    """Return the budget of a device; null for one that is another name of a device before it."""
    usable = budget.usable_bytes if budget else None
    return {"usable_bytes": usable, "reserve_bytes": budget.reserve_bytes if budget else None}
