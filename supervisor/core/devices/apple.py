"""Read the Apple GPU from the output of macOS' tools.

`system_profiler SPDisplaysDataType -json` names it, `sysctl hw.memsize iogpu.wired_limit_mb` tells the memory.

llama.cpp reports Metal's `recommendedMaxWorkingSetSize` as the device's total. Where no engine can be asked, the rule
here stands in: `iogpu.wired_limit_mb` when it is set, else two thirds of the memory up to 32 GiB and three quarters
above. The shares are those of llama.cpp's own log on stock machines: 5461 MiB of 8 GiB, 21845 MiB of 32 GiB,
49152 MiB of 64 GiB; recent systems grant more of large memories (107.5 of 128 GiB), so the rule errs to the small side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.core.devices.physical import APPLE, Gpu
from supervisor.core.text.foreignjson import parse

PROFILER = ("SPDisplaysDataType", "-json")
SYSCTL = ("hw.memsize", "iogpu.wired_limit_mb")

_MIB = 1 << 20
_SMALL = 32 << 30
_VALUE = re.compile(r"^([\w.]+)\s*[:=]\s*(\d+)\s*$", re.MULTILINE)


def parse_apple(profiler: str, sysctl: str) -> tuple[Gpu, ...]:
    """Return the GPU that shares the processor's memory; none on a Mac with an Intel processor.

    Raise ValueError if it is no JSON.
    """
    values = {name: int(value) for name, value in _VALUE.findall(sysctl)}
    value = parse(profiler)
    displays = value.get("SPDisplaysDataType") if isinstance(value, Mapping) else None
    names = [
        str(one.get("sppci_model") or one.get("_name") or "") for one in displays or () if isinstance(one, Mapping)
    ]
    memory = values.get("hw.memsize")
    limit = working_set(memory, values.get("iogpu.wired_limit_mb", 0)) if memory else None
    return tuple(
        Gpu(vendor=APPLE, index=index, name=name, total_bytes=limit, shares_host=True)
        for index, name in enumerate(name for name in names if name.startswith("Apple"))
    )


def working_set(memory_bytes: int, wired_limit_mib: int = 0) -> int:
    """Return the bytes that Metal lets the GPU of an Apple processor use, by the rule in the module's docstring."""
    if wired_limit_mib > 0:
        return min(memory_bytes, wired_limit_mib * _MIB)
    return memory_bytes * 2 // 3 if memory_bytes <= _SMALL else memory_bytes * 3 // 4
