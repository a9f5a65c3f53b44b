"""Translate the variables that hide GPUs into the physical GPUs that are left, in order.

Sources: the CUDA programming guide, "CUDA environment variables" (indices, UUIDs and their unique beginnings; an
invalid entry ends the list; empty hides all), the MIG user guide (a process sees one instance, the first), AMD's "GPU
isolation techniques" and the sources of its runtime (ROCR_VISIBLE_DEVICES first, HIP_VISIBLE_DEVICES counts what that
left, an empty HIP_VISIBLE_DEVICES is none at all, CUDA_VISIBLE_DEVICES stands in for it; GPU_DEVICE_ORDINAL is read for
OpenCL alone), and ggml-vulkan.cpp (GGML_VK_VISIBLE_DEVICES).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from supervisor.core.devices.physical import Gpu
from supervisor.core.devices.vulkan import VulkanDevice, chosen_by_llama_cpp

CUDA_MASK, CUDA_ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
ROCR_MASK, HIP_MASK, OPENCL_MASK = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"
VULKAN_MASK = "GGML_VK_VISIBLE_DEVICES"
MASKS = (CUDA_MASK, CUDA_ORDER, ROCR_MASK, HIP_MASK, OPENCL_MASK, VULKAN_MASK)
"""Every variable that this module reads."""

_INDEX = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Visible:
    """The GPUs that a mask leaves, in its order; `sure` is False where only the driver knows what the mask means."""

    gpus: tuple[Gpu, ...]
    sure: bool = True


def cuda_visible(env: Mapping[str, str], gpus: Sequence[Gpu]) -> Visible:
    """Return NVIDIA's GPUs that a CUDA program sees; `gpus` in PCI order.

    CUDA counts the fastest first unless CUDA_DEVICE_ORDER is PCI_BUS_ID, and tells nobody how it ranks: with GPUs of
    several kinds, numbers in the mask are not sure. Without a mask all are visible, and their order is ours to set.
    """
    mask = env.get(CUDA_MASK)
    if mask is None:
        return _one_instance(gpus)
    entries = [entry.strip() for entry in mask.split(",")]
    by_number = any(_INDEX.fullmatch(entry) for entry in entries)
    alike = len({gpu.name for gpu in gpus}) <= 1
    repeats = len(set(entries)) < len(entries)
    sure = not repeats and (not by_number or alike or env.get(CUDA_ORDER) == "PCI_BUS_ID")
    chosen = _one_instance(_take(mask, partial(_cuda_entry, gpus=gpus), repeated_ends=True))
    return Visible(chosen.gpus, chosen.sure and sure)


def hip_visible(env: Mapping[str, str], gpus: Sequence[Gpu]) -> Visible:
    """Return AMD's GPUs that a HIP program sees. Not sure for several GPUs if the order of the runtime is unknown."""
    ordered = sorted(gpus, key=lambda gpu: gpu.index if gpu.order is None else gpu.order)
    sure = len(ordered) < 2 or all(gpu.order is not None for gpu in ordered)
    rocr, hip = env.get(ROCR_MASK), env.get(HIP_MASK) or env.get(CUDA_MASK)
    if rocr is not None:
        ordered = _take(rocr, partial(_amd_entry, gpus=ordered), repeated_ends=True)
    if hip:
        ordered = _take(hip, partial(_amd_entry, gpus=ordered), repeated_ends=False)
    return Visible(tuple(ordered), sure)


def vulkan_visible(env: Mapping[str, str], devices: Sequence[VulkanDevice]) -> tuple[VulkanDevice, ...]:
    """Return the devices that become Vulkan0, Vulkan1, ….

    A number that does not exist leaves the engine without Vulkan.
    """
    mask = env.get(VULKAN_MASK)
    if mask is None:
        return chosen_by_llama_cpp(tuple(devices))
    chosen: list[VulkanDevice] = []
    for word in mask.replace(",", " ").split():
        if not _INDEX.fullmatch(word):
            break
        if int(word) >= len(devices):
            return ()
        chosen.append(devices[int(word)])
    return tuple(chosen)


def _take(mask: str, find: Callable[[str], Gpu | None], *, repeated_ends: bool) -> list[Gpu]:
    """Return the GPUs of the mask's entries up to the first that names none."""
    found: list[Gpu] = []
    for entry in mask.split(","):
        gpu = find(entry.strip())
        if gpu is None or (gpu in found and repeated_ends):
            break
        if gpu not in found:
            found.append(gpu)
    return found


def _cuda_entry(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if _INDEX.fullmatch(entry):
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        return _by_uuid(entry, [part for gpu in gpus for part in gpu.mig])
    return _by_uuid(entry, gpus) if entry.startswith("GPU-") else None


def _amd_entry(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    if _INDEX.fullmatch(entry) and entry == str(int(entry)):
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    return next((gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower() == entry.lower()), None)


def _by_uuid(beginning: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Return the one GPU whose UUID begins like this; None if there is not exactly one."""
    found = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower().startswith(beginning.lower())]
    return found[0] if len(found) == 1 else None


def _one_instance(gpus: Sequence[Gpu]) -> Visible:
    """Return the visible GPUs without a mask.

    A process sees one MIG instance alone; beside whole GPUs only the driver knows which.
    """
    leaves = tuple(gpu.mig[0] if gpu.mig else gpu for gpu in gpus)
    instances = [leaf for leaf in leaves if (leaf.uuid or "").startswith("MIG-")]
    if not instances:
        return Visible(leaves)
    return Visible(tuple(instances[:1]), sure=len(instances) == len(leaves))
