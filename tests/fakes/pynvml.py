"""Stands in for NVIDIA's bindings in the helper's process: two GPUs, one cut into instances, one that tells little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
NVML_DEVICE_MIG_ENABLE = 1


class NVMLError(Exception):
    """What the driver answers where it cannot or will not tell."""


def nvmlInit() -> None:
    """Begin."""


def nvmlDeviceGetCount() -> int:
    return 2


def nvmlDeviceGetHandleByIndex(index: int) -> str:
    return ("a100", "gb10")[index]


def nvmlDeviceGetMigDeviceHandleByIndex(handle: str, index: int) -> Any:
    return _of(("half", None)[index])


_ANSWERS: dict[str, dict[str, Any]] = {
    "nvmlDeviceGetName": {"a100": b"NVIDIA A100-SXM4-40GB", "gb10": "NVIDIA GB10", "half": "NVIDIA A100 MIG 3g.20gb"},
    "nvmlDeviceGetUUID": {"a100": "GPU-a", "gb10": "GPU-b", "half": "MIG-c"},
    "nvmlDeviceGetMemoryInfo": {
        "a100": SimpleNamespace(total=40000, free=30000),
        "half": SimpleNamespace(total=20000, free=15000),
    },
    "nvmlDeviceGetPciInfo": {"a100": SimpleNamespace(busId=b"00000000:81:00.0"),
                             "gb10": SimpleNamespace(busId="0000000F:01:00.0")},
    "nvmlDeviceGetCudaComputeCapability": {"a100": (8, 0), "gb10": (12, 1)},
    "nvmlDeviceGetUtilizationRates": {"gb10": SimpleNamespace(gpu=12)},
    "nvmlDeviceGetTemperature": {"gb10": 40},
    "nvmlDeviceGetComputeRunningProcesses": {"half": [SimpleNamespace(pid=7, usedGpuMemory=5000)]},
    "nvmlDeviceGetGraphicsRunningProcesses": {"gb10": [SimpleNamespace(pid=8, usedGpuMemory=None)]},
    "nvmlDeviceGetMigMode": {"a100": (1, 1), "gb10": (0, 0)},
    "nvmlDeviceGetMaxMigDeviceCount": {"a100": 2},
}  # fmt: skip


def _of(value: Any) -> Any:
    if value is None:
        raise NVMLError("Not Supported")
    return value


def __getattr__(name: str) -> Any:
    if name not in _ANSWERS:
        raise AttributeError(name)
    return lambda handle, *_: _of(_ANSWERS[name].get(handle))
