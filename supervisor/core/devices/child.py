"""Make an engine see exactly the devices chosen for it, in that order, and tell their names there.

`--device` alone is not enough: CUDA opens a context on GPUs that are not listed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.core.devices.model import Device
from supervisor.core.devices.visibility import CUDA_MASK, CUDA_ORDER, HIP_MASK, ROCR_MASK, VULKAN_MASK

_NONE = {"cuda": {CUDA_MASK: ""}, "hip": {ROCR_MASK: "", HIP_MASK: "-1"}, "vulkan": {VULKAN_MASK: ""}}
_PREFIXES = {"cuda": "CUDA", "hip": "ROCm", "vulkan": "Vulkan"}


def visible_env(devices: Sequence[Device], every: Sequence[Device] = ()) -> Mapping[str, str]:
    """Return the variables for the engine's environment that show it the chosen devices alone.

    Args:
        devices: the chosen ones, in the order wanted.
        every: all devices of the machine; back ends of which none is chosen are hidden wholly.

    A back end with a chosen device that has no selector is left as it is.
    """
    env: dict[str, str] = {}
    chosen = {device.backend for device in devices}
    for device in every:
        if device.backend not in chosen:
            env |= _NONE.get(device.backend, {})
    for backend in dict.fromkeys(device.backend for device in devices):
        selectors = _selectors(backend, devices)
        if selectors is not None:
            env |= _mask(backend, selectors)
    return env


def names_in_child(devices: Sequence[Device], every: Sequence[Device] = ()) -> tuple[str, ...]:
    """Return llama.cpp's names of the chosen devices in an engine with `visible_env` and `--rpc rpc_endpoints`.

    Args:
        devices: the chosen ones, in the order wanted.
        every: all devices of the machine: an RPC worker brings all of its devices, chosen or not.
    """
    counts: dict[str, int] = {}
    names = []
    workers = _names_of_workers(devices, every)
    for device in devices:
        if device.backend == "rpc":
            names.append(workers[device.name])
        elif device.backend in _PREFIXES and _selectors(device.backend, devices) is not None:
            number = counts.get(device.backend, 0)
            counts[device.backend] = number + 1
            names.append(f"{_PREFIXES[device.backend]}{number}")
        else:
            names.append(device.name)
    return tuple(names)


def rpc_endpoints(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the endpoints for the engine's `--rpc`: the workers of the chosen devices, each once, in order."""
    return tuple(dict.fromkeys(device.endpoint for device in devices if device.endpoint))


def _selectors(backend: str, devices: Sequence[Device]) -> list[str] | None:
    """Return the selectors of one back end's chosen devices; None if it has no variable or a selector is unknown."""
    if backend not in _PREFIXES:
        return None
    found = [device.selector for device in devices if device.backend == backend]
    known = [selector for selector in found if selector is not None]
    return known if len(known) == len(found) else None


def _mask(backend: str, selectors: Sequence[str]) -> dict[str, str]:
    joined = ",".join(selectors)
    if backend == "cuda":
        return {CUDA_ORDER: "PCI_BUS_ID", CUDA_MASK: joined}
    if backend == "hip":  # what HIP sees is counted anew after the runtime's mask
        return {ROCR_MASK: joined, HIP_MASK: ",".join(str(number) for number in range(len(selectors)))}
    return {VULKAN_MASK: joined}


def _names_of_workers(devices: Sequence[Device], every: Sequence[Device]) -> dict[str, str]:
    """Map our name of each RPC device to the engine's, which counts through all workers in `--rpc` order."""
    known = {device.name: device for device in (*every, *devices) if device.backend == "rpc"}
    named: dict[str, str] = {}
    for endpoint in rpc_endpoints(devices):
        for device in known.values():
            if device.endpoint == endpoint:
                named[device.name] = f"RPC{len(named)}"
    return {name: named.get(name, name) for name in known}
