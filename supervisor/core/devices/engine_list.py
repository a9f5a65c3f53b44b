"""Read the output of `llama-server --list-devices`, which decides which devices exist and what they are called.

The format is `common_print_available_devices` of llama.cpp (common/arg.cpp): a heading, then one line per device that
is not the CPU, `  NAME: DESCRIPTION (TOTAL MiB, FREE MiB free)`, or `  (none)`. An RPC worker's description is its
endpoint; builds before July 2025 have the endpoint in its name, `RPC[host:port]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MIB = 1 << 20

_LINE = re.compile(
    r"^[ \t]+(?P<name>\S+): (?P<description>.*) \((?P<total>\d+) MiB, (?P<free>\d+) MiB free\)\s*$", re.MULTILINE
)
_ENDPOINT = re.compile(r"^(?:RPC)?\[?(?P<endpoint>\S+:\d{1,5})\]?$")
# By the letters of the name; what is not here is its own back end.
_BACKENDS = {"rocm": "hip", "mtl": "metal", "gpuopencl": "opencl", "htp": "hexagon"}
# Libraries that compute for the CPU back end (llama.cpp's device type "accel"): no tensor is placed on them.
_ACCELERATORS = frozenset({"blas", "amx", "zdnn", "accelerate"})


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list; sizes are whole MiB in bytes. `free_bytes` is what the asking process itself saw.

    shares_host: its memory is this host's, or is not; None: nobody has told. round_trip_s: as in `Device`.
    """

    name: str
    backend: str
    description: str
    total_bytes: int
    free_bytes: int
    endpoint: str | None = None
    shares_host: bool | None = None
    round_trip_s: float | None = None


def parse_device_list(text: str) -> tuple[Listed, ...]:
    """Return the devices in llama.cpp's order, which is that of the list. Skip lines of any other form."""
    found = (_listed(line) for line in _LINE.finditer(text))
    return tuple(one for one in found if one.backend not in _ACCELERATORS)


def backend_of(name: str) -> str:
    """Return the back end of a device by llama.cpp's name for it: `CUDA0` is `cuda`, `MTL0` is `metal`."""
    letters = re.match(r"[A-Za-z]+", name)
    word = letters.group().lower() if letters else name.lower()
    return _BACKENDS.get(word, word)


def _listed(line: re.Match[str]) -> Listed:
    name, description = line["name"], line["description"]
    backend = backend_of(name)
    total, free = int(line["total"]) * MIB, int(line["free"]) * MIB
    endpoint = None
    if backend == "rpc":
        told = _ENDPOINT.match(description) or _ENDPOINT.match(name)
        endpoint = told["endpoint"] if told else None
    return Listed(name, backend, description, total, free, endpoint)
