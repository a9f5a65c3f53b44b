"""A GPU as the drivers know it, whatever llama.cpp calls it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

NVIDIA, AMD, INTEL, APPLE = "nvidia", "amd", "intel", "apple"

_PCI = re.compile(r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU, or one MIG instance of it. Bytes; None where the driver does not tell.

    Attributes:
        index: its number among the GPUs of its vendor in PCI order: nvidia-smi's.
        order: its number in the order of the vendor's runtime, where that is another one (AMD's KFD nodes).
        pci: `0000:01:00.0`, lower case.
        uuid: as the vendor's variables of visible devices take it.
        shares_host: it has no memory of its own.
        processes: bytes by process id.
        mig: its instances, where it is partitioned.
    """

    vendor: str
    index: int
    name: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    pci: str | None = None
    uuid: str | None = None
    order: int | None = None
    compute_capability: str | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    shares_host: bool = False
    processes: Mapping[int, int] = field(default_factory=dict)
    mig: tuple[Gpu, ...] = ()


def normal_pci(text: str | None) -> str | None:
    """Return a PCI address such as `00000000:0A:00.0` or `0a:00.0` as the kernel writes it, `0000:0a:00.0`.

    None if it is none.
    """
    found = _PCI.fullmatch((text or "").strip().lower())
    if not found:
        return None
    domain = int(found["domain"] or "0", 16)
    return f"{domain:04x}:{found['bus']}:{found['device']}.{found['function']}"
