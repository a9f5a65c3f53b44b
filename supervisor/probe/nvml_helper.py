"""Read NVIDIA's figures through NVML in a process of its own, and write them as JSON (`core/devices/nvidia`).

A driver call that hangs cannot be cancelled, only left behind with its process. NVML opens no context on a GPU. It is
run by its path, so that nothing of this program has to be imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml

nvml: Any = pynvml  # it ships no types


def main() -> int:
    """Print `{"gpus": [...]}`; exit status 1 with the reason where NVML cannot be used."""
    try:
        nvml.nvmlInit()
        gpus = [_gpu(nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        sys.stderr.write(f"NVML: {error}\n")
        return 1
    json.dump({"gpus": gpus}, sys.stdout)
    return 0


def _gpu(handle: Any) -> dict[str, Any]:
    return {
        **_part(handle),
        "pci": _told(lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        "capability": _told(lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "utilization": _told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "temperature": _told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "mig": _instances(handle),
    }


def _part(handle: Any) -> dict[str, Any]:
    """Return the fields that a GPU and a MIG instance both have."""
    memory = _told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return {
        "name": _told(lambda: _text(nvml.nvmlDeviceGetName(handle))),
        "uuid": _told(lambda: _text(nvml.nvmlDeviceGetUUID(handle))),
        "total": memory.total if memory else None,
        "free": memory.free if memory else None,
        "processes": [
            (process.pid, process.usedGpuMemory)
            for read in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses)
            for process in _told(lambda read=read: read(handle)) or ()
        ],
    }


def _instances(handle: Any) -> list[dict[str, Any]]:
    mode = _told(lambda: nvml.nvmlDeviceGetMigMode(handle))
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return []
    count = _told(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0
    handles = (_told(lambda n=n: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, n)) for n in range(count))
    return [_part(instance) for instance in handles if instance is not None]


def _told(read: Callable[..., Any]) -> Any:
    """Return the value; None where the driver does not tell it of this GPU."""
    try:
        return read()
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
