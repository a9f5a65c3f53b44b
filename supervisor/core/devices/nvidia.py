"""Read NVIDIA's GPUs from the output of our helper process, which reads them through NVML (`probe/nvml_helper.py`).

The helper writes one JSON object: `gpus`, a list of objects with `name`, `uuid`, `pci`, `total`, `free` (bytes),
`capability` (major, minor), `utilization` (percent), `temperature` (°C), `processes` ([pid, bytes], …; the same pid may
come twice, once for computing and once for graphics) and `mig` (objects like these). A value that the driver refused
is null. A GPU without memory figures has no memory of its own: NVML answers "not supported" on DGX Spark and Jetson.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from supervisor.core.devices.physical import NVIDIA, Gpu, normal_pci
from supervisor.core.text.foreignjson import parse


def parse_nvml(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in PCI order, numbered as nvidia-smi does.

    Raise ValueError where the text is not the helper's.
    """
    value = parse(text)
    if not isinstance(value, dict) or not isinstance(value.get("gpus"), list):
        raise ValueError("no list of GPUs")
    gpus = sorted((_gpu(one) for one in value["gpus"]), key=lambda gpu: gpu.pci or "~")
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))


def _gpu(facts: Mapping[str, Any]) -> Gpu:
    total, free = facts.get("total"), facts.get("free")
    capability = facts.get("capability")
    return Gpu(
        vendor=NVIDIA,
        index=0,
        name=str(facts.get("name") or "NVIDIA GPU"),
        total_bytes=total,
        free_bytes=free,
        pci=normal_pci(facts.get("pci")),
        uuid=facts.get("uuid"),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
        utilization_percent=facts.get("utilization"),
        temperature_c=facts.get("temperature"),
        shares_host=total is None,
        processes=_processes(facts.get("processes") or ()),
        mig=tuple(_gpu(part) for part in facts.get("mig") or ()),
    )


def _processes(pairs: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for pid, used in pairs:
        if used is not None:
            found[pid] = max(used, found.get(pid, 0))
    return found
