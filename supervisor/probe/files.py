"""Read what Linux reports of GPUs and memory in its file systems."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from supervisor.core.devices.host import Group, memory_groups
from supervisor.core.devices.sysfs import DrmCard, KfdNode

_CARD = re.compile(r"card\d+")
_CARD_FILES = (
    "vendor", "unique_id", "product_name", "gpu_busy_percent",
    "mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total", "mem_info_gtt_used",
)  # fmt: skip
_V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_V2_FILES = ("memory.max", "memory.current")
_METRICS_BYTES = 4


def drm_cards(sysfs: Path) -> list[DrmCard]:
    """Return the cards of the kernel's graphics drivers."""
    found = []
    for card in sorted((sysfs / "class/drm").glob("card*")):
        device = card / "device"
        if not _CARD.fullmatch(card.name) or not device.exists():
            continue
        files = {name: text for name in _CARD_FILES if (text := read_text(device / name))}
        heat = next((text for path in device.glob("hwmon/hwmon*/temp1_input") if (text := read_text(path))), "")
        metrics = _read_bytes(device / "gpu_metrics", _METRICS_BYTES)
        found.append(DrmCard(device.resolve().name, {**files, "temp1_input": heat}, metrics))
    return found


def kfd_nodes(sysfs: Path) -> list[KfdNode]:
    """Return the nodes of AMD's compute driver, with the memory that each process holds there."""
    root = sysfs / "class/kfd/kfd"
    found = []
    for node in (root / "topology/nodes").glob("*"):
        gpu_id = read_text(node / "gpu_id").strip()
        pids = (path.parent for path in (root / "proc").glob(f"*/vram_{gpu_id}")) if gpu_id not in {"", "0"} else ()
        held = {int(pid.name): read_text(pid / f"vram_{gpu_id}") for pid in pids if pid.name.isdigit()}
        if node.name.isdigit():
            found.append(KfdNode(int(node.name), read_text(node / "properties"), gpu_id, held))
    return found


def memory_limits(procfs: Path, sysfs: Path) -> Iterator[Group]:
    """Yield the control groups above this process that have figures on memory, ours first."""
    for version, path in memory_groups(read_text(procfs / "self/cgroup")):
        root, names = sysfs / "fs/cgroup", _V2_FILES
        if version == 1:
            root, names = root / "memory", _V1_FILES
        folder = root / path.lstrip("/")
        # in a container the path may be the one outside; then the root is our own group
        while folder != root.parent:
            limit = read_text(folder / names[0])
            if limit:
                yield Group(limit, read_text(folder / names[1]), read_text(folder / "memory.stat"))
            folder = folder.parent


def read_text(path: Path) -> str:
    """Return the content of a file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _read_bytes(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(count)
    except OSError:
        return b""
