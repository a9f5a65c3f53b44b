"""Read the GPUs from Linux' own files: `/sys/class/drm/card*/device` and `/sys/class/kfd/kfd/topology/nodes`.

Names and units: Documentation/gpu/amdgpu/driver-misc.rst of the kernel (`mem_info_vram_total`, `mem_info_vram_used`,
`mem_info_gtt_total`, `mem_info_gtt_used`: bytes; `gpu_busy_percent`; `unique_id`: hexadecimal). `gpu_metrics` begins
with a header whose third byte is the format: 1 for cards, 2 and 3 for processors with graphics (kgd_pp_interface.h).
An Intel GPU within the processor is always device 00:02.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from supervisor.core.devices.physical import AMD, INTEL, NVIDIA, Gpu, normal_pci

_VENDORS = {"0x1002": AMD, "0x8086": INTEL, "0x10de": NVIDIA}
_NAMES = {AMD: "AMD GPU", INTEL: "Intel GPU", NVIDIA: "NVIDIA GPU"}
_INTEGRATED_INTEL = "0000:00:02.0"
_PROPERTY = re.compile(r"^(\w+) (\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DrmCard:
    """The texts of one `/sys/class/drm/cardN/device`.

    Attributes:
        address: the last part of what the link points to: the PCI address.
        files: content by file name; what cannot be read is left out.
        metrics: the first bytes of `gpu_metrics`.
    """

    address: str
    files: Mapping[str, str]
    metrics: bytes = b""


@dataclass(frozen=True, slots=True)
class KfdNode:
    """The texts of one node of AMD's compute driver: its number, `properties`, `gpu_id`, and `vram_GPUID` by pid."""

    number: int
    properties: str
    gpu_id: str = ""
    processes: Mapping[int, str] = field(default_factory=dict)


def parse_cards(cards: Iterable[DrmCard], nodes: Iterable[KfdNode] = ()) -> tuple[Gpu, ...]:
    """Return AMD's and Intel's GPUs in PCI order, numbered by vendor. NVIDIA's driver tells nothing here."""
    compute = _compute_nodes(nodes)
    found = []
    for card in cards:
        pci = normal_pci(card.address)
        vendor = _VENDORS.get(card.files.get("vendor", "").strip())
        if pci and vendor == AMD:
            found.append(_amd(card, pci, compute))
        elif pci and vendor == INTEL:
            found.append(Gpu(INTEL, 0, _NAMES[INTEL], pci=pci, shares_host=pci == _INTEGRATED_INTEL))
    found.sort(key=lambda gpu: gpu.pci or "")
    counts = dict.fromkeys(_NAMES, 0)
    numbered = []
    for gpu in found:
        numbered.append(replace(gpu, index=counts[gpu.vendor]))
        counts[gpu.vendor] += 1
    return tuple(numbered)


def _amd(card: DrmCard, pci: str, compute: Mapping[str, tuple[int, KfdNode]]) -> Gpu:
    order, node = compute.get(pci, (None, None))
    total, used = _number(card, "mem_info_vram_total"), _number(card, "mem_info_vram_used")
    integrated = len(card.metrics) > 2 and card.metrics[2] >= 2
    if integrated:  # what the processor's graphics can take: its carved-out part and the host's pages it may map
        total, used = _sum(total, _number(card, "mem_info_gtt_total")), _sum(used, _number(card, "mem_info_gtt_used"))
    unique = card.files.get("unique_id", "").strip()
    return Gpu(
        vendor=AMD,
        index=0,
        name=card.files.get("product_name", "").strip() or _NAMES[AMD],
        total_bytes=total,
        free_bytes=max(0, total - used) if total is not None and used is not None else None,
        pci=pci,
        uuid=f"GPU-{unique}" if unique.strip("0") else None,
        order=order,
        utilization_percent=_number(card, "gpu_busy_percent"),
        temperature_c=_degrees(_number(card, "temp1_input")),
        shares_host=integrated,
        processes={pid: int(text) for pid, text in node.processes.items() if text.strip().isdigit()} if node else {},
    )


def _compute_nodes(nodes: Iterable[KfdNode]) -> dict[str, tuple[int, KfdNode]]:
    """Return the GPUs among the nodes by PCI address, each with its number in the runtime's order."""
    found: dict[str, tuple[int, KfdNode]] = {}
    for node in sorted(nodes, key=lambda one: one.number):
        facts = {key: int(value) for key, value in _PROPERTY.findall(node.properties)}
        if facts.get("simd_count"):
            place = facts.get("location_id", 0)
            domain, bus, slot, function = facts.get("domain", 0), place >> 8 & 255, place >> 3 & 31, place & 7
            found[f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"] = (len(found), node)
    return found


def _number(card: DrmCard, name: str) -> int | None:
    text = card.files.get(name, "").strip()
    return int(text) if text.isdigit() else None


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _degrees(thousandths: int | None) -> int | None:
    return None if thousandths is None else thousandths // 1000
