"""Join the engine's list and the drivers' figures: one device, with all its names.

The engine's list decides what exists and how large it is: a back end sees a little less than the driver's total. Free
memory comes from the driver where it tells, because the engine that made the list held a context of its own then. A
GPU is recognised by its place in what the masks leave, and the names must agree; what cannot be told stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.core.devices.engine_list import MIB, Listed
from supervisor.core.devices.model import Device, Host, Problem
from supervisor.core.devices.physical import AMD, APPLE, INTEL, NVIDIA, Gpu
from supervisor.core.devices.visibility import (
    CUDA_MASK,
    CUDA_ORDER,
    HIP_MASK,
    ROCR_MASK,
    Visible,
    cuda_visible,
    hip_visible,
    vulkan_visible,
)
from supervisor.core.devices.vulkan import VulkanDevice

_LOOPBACK = ("127.", "localhost:", "[::1]:", "::1:")
_VENDOR_OF_BACKEND = {"metal": APPLE, "sycl": INTEL, "cuda": NVIDIA, "hip": AMD}


@dataclass(frozen=True, slots=True)
class DriverReport:
    """The drivers' answer: GPUs of all vendors, and Vulkan's own list (empty where nobody could be asked)."""

    gpus: tuple[Gpu, ...] = ()
    vulkan: tuple[VulkanDevice, ...] = ()

    def of(self, vendor: str) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.vendor == vendor)


@dataclass(frozen=True, slots=True)
class Joined:
    """The devices in the engine's order, and the problems found."""

    devices: tuple[Device, ...]
    problems: tuple[Problem, ...] = ()


_Match = tuple[Gpu | None, str | None]  # the physical GPU, and the selector of its back end


def listing_env(found: DriverReport, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make the device order known to the engine that lists: `env`'s masks, translated.

    CUDA's GPUs by UUID in PCI order, AMD's by the runtime's numbers. Nothing where the translation is not sure.
    """
    added: dict[str, str] = {}
    nvidia = cuda_visible(env, found.of(NVIDIA))
    amd = hip_visible(env, found.of(AMD))
    if found.of(NVIDIA) and nvidia.sure and all(gpu.uuid for gpu in nvidia.gpus):
        added |= {CUDA_ORDER: "PCI_BUS_ID", CUDA_MASK: ",".join(gpu.uuid or "" for gpu in nvidia.gpus)}
    if amd.gpus and all(gpu.order is not None for gpu in amd.gpus):
        added |= {ROCR_MASK: ",".join(str(gpu.order) for gpu in amd.gpus)}
        added |= {HIP_MASK: ",".join(str(number) for number in range(len(amd.gpus)))}
    return added


def join(listed: Sequence[Listed], found: DriverReport, env: Mapping[str, str], host: Host) -> Joined:
    """Return the machine's devices by the engine's list, with what the drivers know of each.

    Args:
        listed: from an engine that ran in `env` with `listing_env` added.
        found: the drivers' figures.
        env: the environment whose masks hold.
        host: to recognise RPC workers that compute in this machine's own memory.
    """
    problems: list[Problem] = []
    matches: dict[str, _Match] = {}
    for backend in dict.fromkeys(one.backend for one in listed):
        group = [one for one in listed if one.backend == backend]
        told = _match(backend, group, found, env)
        if told is None:
            names = ", ".join(one.name for one in group)
            problems.append(Problem(f"identity:{backend}", _UNTOLD.get(backend, _UNTOLD[""]).format(names=names)))
            told = [(None, None)] * len(group)
        matches |= {one.name: match for one, match in zip(group, told, strict=True)}
    devices = tuple(_device(one, *matches[one.name], host) for one in listed)
    return Joined(devices, tuple(problems))


def is_known(device: Device, gpus: Sequence[Gpu]) -> bool:
    """Return whether a driver tells the free memory of this device."""
    same = _gpu_that_is(device, gpus)
    return same is not None and same.free_bytes is not None


def held_by(pid: int, devices: Sequence[Device], gpus: Sequence[Gpu]) -> dict[str, int]:
    """Return the bytes that the drivers say a process holds, by device name.

    A device that no driver tells of is left out.
    """
    found = {device.name: _gpu_that_is(device, gpus) for device in devices}
    return {name: gpu.processes[pid] for name, gpu in found.items() if gpu is not None and pid in gpu.processes}


_UNTOLD = {
    "cuda": "The GPUs {names} cannot be told apart, so engines cannot be pinned to them; "
    "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID in CUDA_VISIBLE_DEVICES.",
    "": "The GPUs {names} cannot be told apart, so engines cannot be pinned to them; their sizes are the engine's own.",
}


def _match(backend: str, group: Sequence[Listed], found: DriverReport, env: Mapping[str, str]) -> list[_Match] | None:
    """Return the GPU of each device of one back end; None where there are GPUs but they cannot be told apart."""
    if backend == "cuda":
        return _by_place(group, cuda_visible(env, found.of(NVIDIA)), found.of(NVIDIA))
    if backend == "hip":
        return _by_place(group, hip_visible(env, found.of(AMD)), found.of(AMD))
    if backend == "vulkan":
        return _vulkan(group, found, env)
    vendor = _VENDOR_OF_BACKEND.get(backend)
    gpus = found.of(vendor) if vendor else ()
    return [(gpus[0], None)] if len(gpus) == len(group) == 1 else [(None, None)] * len(group)


def _by_place(group: Sequence[Listed], visible: Visible, gpus: Sequence[Gpu]) -> list[_Match] | None:
    if not gpus:
        return [(None, None)] * len(group)
    agree = len(group) == len(visible.gpus) and all(map(_agree, group, visible.gpus))
    if agree and (visible.sure or len(gpus) == 1):
        return [(gpu, _selector(gpu)) for gpu in visible.gpus]
    by_name = [[gpu for gpu in gpus if _name(gpu.name) == _name(one.description)] for one in group]
    told = [candidates[0] for candidates in by_name if len(candidates) == 1]
    if len(told) == len(group) and all(told.count(gpu) == 1 for gpu in told):
        return [(gpu, _selector(gpu)) for gpu in told]
    return None


def _vulkan(group: Sequence[Listed], found: DriverReport, env: Mapping[str, str]) -> list[_Match] | None:
    visible = vulkan_visible(env, found.vulkan)
    if len(visible) == len(group) and all(
        _name(a.description) == _name(b.name) for a, b in zip(group, visible, strict=True)
    ):
        return [(_gpu_of(device, found), str(device.index)) for device in visible]
    return [(None, None)] * len(group) if not found.vulkan else None


def _gpu_of(device: VulkanDevice, found: DriverReport) -> Gpu | None:
    gpus = found.of(device.vendor) if device.vendor else ()
    for gpu in gpus:
        by_uuid = device.uuid and gpu.uuid and gpu.uuid.lower() == f"gpu-{device.uuid}"
        if by_uuid or (device.pci and device.pci == gpu.pci):
            return gpu
    if len(gpus) == 1:
        return gpus[0]
    integrated = device.kind == "integrated"
    return Gpu(device.vendor or "", 0, device.name, shares_host=True) if integrated else None


def _selector(gpu: Gpu) -> str | None:
    if gpu.vendor == AMD:
        return None if gpu.order is None else str(gpu.order)
    return gpu.uuid


def _agree(one: Listed, gpu: Gpu) -> bool:
    """Return whether the listed device can be this GPU: by the marketing name where it is known, else by size."""
    if gpu.vendor == NVIDIA:
        return (gpu.uuid or "").startswith("MIG-") or _name(one.description) == _name(gpu.name)
    if gpu.total_bytes is None or gpu.shares_host or not one.total_bytes:
        return True
    return abs(one.total_bytes - gpu.total_bytes) <= gpu.total_bytes // 20


def _name(text: str) -> str:
    return " ".join(text.lower().removeprefix("nvidia ").split())


def _device(one: Listed, gpu: Gpu | None, selector: str | None, host: Host) -> Device:
    device = Device(
        name=one.name,
        backend=one.backend,
        description=one.description,
        total_bytes=one.total_bytes,
        free_bytes=min(one.free_bytes, one.total_bytes),
        endpoint=one.endpoint,
        selector=selector,
        round_trip_s=one.round_trip_s,
        shares_host=one.backend == "metal" or _is_hosts_own(one, host),
    )
    return device if gpu is None else _with_figures(device, gpu)


def _with_figures(device: Device, gpu: Gpu) -> Device:
    total = device.total_bytes or gpu.total_bytes or 0
    free = device.free_bytes if gpu.free_bytes is None else gpu.free_bytes
    known = gpu.pci is not None or gpu.uuid is not None
    return replace(
        device,
        total_bytes=total,
        free_bytes=min(free, total),
        index=gpu.index if known else None,
        uuid=gpu.uuid,
        pci=gpu.pci,
        compute_capability=gpu.compute_capability,
        utilization_percent=gpu.utilization_percent,
        temperature_c=gpu.temperature_c,
        shares_host=device.shares_host or gpu.shares_host,
        processes=gpu.processes,
    )


def _gpu_that_is(device: Device, gpus: Sequence[Gpu]) -> Gpu | None:
    parts = [part for gpu in gpus for part in (gpu, *gpu.mig)]
    if device.uuid:
        return next((gpu for gpu in parts if gpu.uuid == device.uuid), None)
    return next((gpu for gpu in gpus if gpu.pci == device.pci), None) if device.pci else None


def _is_hosts_own(one: Listed, host: Host) -> bool:
    """Return whether an RPC device is this host's own memory: a local worker of the size of its host's."""
    if one.shares_host is not None:
        return one.shares_host
    local = (one.endpoint or "").startswith(_LOOPBACK)
    return local and abs(one.total_bytes - host.total_bytes) <= MIB
