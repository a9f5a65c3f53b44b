"""The host's memory: what the system has, within the limits of the control groups that we run in.

A group's file cache is counted as used but given back on demand, as `MemAvailable` does for the machine: usage minus
`inactive_file`, `active_file` and `slab_reclaimable` of `memory.stat` (Documentation/admin-guide/cgroup-v2.rst). The
limits of all groups from ours to the top hold; the tightest decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from supervisor.core.devices.model import Host

_V1_UNLIMITED = 1 << 60  # version 1 writes "no limit" as the largest multiple of the page size
_STAT = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)
_GIVEN_BACK = ("inactive_file", "active_file", "slab_reclaimable")


@dataclass(frozen=True, slots=True)
class Group:
    """The texts of one control group: `memory.max`, `memory.current`, `memory.stat`, or those of version 1.

    Version 1: `memory.limit_in_bytes`, `memory.usage_in_bytes`, `memory.stat`.
    """

    limit: str
    usage: str
    stat: str = ""


def memory_groups(text: str) -> tuple[tuple[int, str], ...]:
    """Return (version, path) of the groups in `/proc/self/cgroup` that may limit memory."""
    found = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found.append((1, path))
        elif number == "0" and not controllers:
            found.append((2, path))
    return tuple(found)


def host_memory(total_bytes: int, available_bytes: int, groups: Iterable[Group] = ()) -> Host:
    """Return the machine's total and available memory, reduced to what the groups leave."""
    total, available = total_bytes, available_bytes
    for group in groups:
        limit = _limit(group.limit)
        if limit is None:
            continue
        total = min(total, limit)
        used = int(group.usage) if group.usage.strip().isdigit() else 0
        available = min(available, max(0, limit - max(0, used - _reclaimable(group.stat))))
    return Host(total_bytes=total, available_bytes=min(available, total))


def _limit(text: str) -> int | None:
    word = text.strip()
    return int(word) if word.isdigit() and int(word) < _V1_UNLIMITED else None


def _reclaimable(stat: str) -> int:
    facts = {name: int(value) for name, value in _STAT.findall(stat)}
    # version 1 counts a group's children only in the totals
    return sum(facts.get(f"total_{name}", facts.get(name, 0)) for name in _GIVEN_BACK)
