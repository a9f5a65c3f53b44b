"""Count the physical cores this process may use: the machine's, within affinity and the control group's quota."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def physical_cores(cgroup: Path = _CGROUP) -> int:
    """Return the number of cores, at least 1.

    Where they cannot be counted (some virtual machines), the logical processors count.
    """
    limits = [psutil.cpu_count(logical=False) or os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        limits.append(len(os.sched_getaffinity(0)))
    quota = parse_quota(_text(cgroup / "cpu.max"))
    return max(1, min(limits if quota is None else [*limits, quota]))


def parse_quota(text: str) -> int | None:
    """Return the whole processors of `cpu.max`: `200000 100000` is 2; `max 100000` and anything else None."""
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or not int(parts[1]):
        return None
    return int(parts[0]) // int(parts[1])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
