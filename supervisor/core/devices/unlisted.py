"""GPUs that drivers know and no engine lists, because there is no engine or it lacks the back end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.core.devices.engine_list import Listed
from supervisor.core.devices.join import DriverReport
from supervisor.core.devices.model import Device, Problem
from supervisor.core.devices.physical import AMD, APPLE, NVIDIA, Gpu
from supervisor.core.devices.visibility import cuda_visible, hip_visible

_BACKENDS = {NVIDIA: "cuda", AMD: "hip"}
_UNUSED = (
    "The driver has {name}, but this llama-server does not use it; `supervisor engine install --backend {backend}` "
    "gets one that does."
)


def guess_list(found: DriverReport, env: Mapping[str, str]) -> tuple[Listed, ...]:
    """Return the list that a build with every back end would print, as far as the drivers tell."""
    return (
        *_listed("CUDA", "cuda", cuda_visible(env, found.of(NVIDIA)).gpus),
        *_listed("ROCm", "hip", hip_visible(env, found.of(AMD)).gpus),
        *_listed("MTL", "metal", found.of(APPLE)),
    )


def unused_gpus(found: DriverReport, devices: Sequence[Device], env: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return a problem for each vendor whose visible cards the engine does not list."""
    visible = {NVIDIA: cuda_visible(env, found.of(NVIDIA)).gpus, AMD: hip_visible(env, found.of(AMD)).gpus}
    used = {device.uuid or device.pci for device in devices} - {None}
    backends = {device.backend for device in devices}
    problems = []
    for vendor, backend in _BACKENDS.items():
        cards = [gpu for gpu in visible[vendor] if not gpu.shares_host]
        if cards and not backends & {backend, "vulkan"} and not any((gpu.uuid or gpu.pci) in used for gpu in cards):
            problems.append(Problem(f"unused:{vendor}", _UNUSED.format(name=cards[0].name, backend=backend)))
    return tuple(problems)


def _listed(prefix: str, backend: str, gpus: Sequence[Gpu]) -> list[Listed]:
    sized = [(gpu, gpu.total_bytes or 0) for gpu in gpus]
    return [
        Listed(f"{prefix}{number}", backend, gpu.name, total, total if gpu.free_bytes is None else gpu.free_bytes)
        for number, (gpu, total) in enumerate(sized)
    ]
