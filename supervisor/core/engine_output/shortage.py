"""Find in an engine's words that memory ran out: on which device, and how large the buffer was that it did not get.

Every back end has words of its own (ggml-cuda.cu, ggml-vulkan-buffers.cpp, ggml-metal-device.m, ggml-sycl.cpp,
ggml-opencl.cpp, ggml-backend.cpp, ggml-alloc.c of b11434, and of older builds what differs). The line that names the
most decides: a named buffer first, then CUDA's and the host's own words, then any that only says so.

A shortage that the engine gets over is none: pinned memory, uploads beside the main path, and compute buffers that it
reserves again without pipeline parallelism.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HOST = "CPU"

_MIB = 1 << 20
_MEBIBYTES = r"(?P<mib>\d{1,15}(?:\.\d{1,9})?)"
_BYTES = r"(?P<bytes>\d{1,18})\b"

_BUFFER = re.compile(rf"failed to allocate (?P<name>\S+) buffer of (?:size )?{_BYTES}")
_UNABLE = re.compile(r"unable to allocate (?P<name>\S+) buffer")
_CUDA = re.compile(rf"allocating {_MEBIBYTES} MiB on device (?P<index>\d{{1,9}}): \w+ failed")
_CUDA_ERROR = re.compile(r"(?P<api>CUDA|ROCm|HIP|MUSA) error: (?:out of memory|CUBLAS_STATUS_ALLOC_FAILED)")
_CURRENT = re.compile(r"current device: (?P<index>\d{1,9})\b")
_HOST = (
    re.compile(rf"insufficient memory \(attempted to allocate {_MEBIBYTES} MB\)"),
    re.compile(rf"cpu_buffer_type_alloc_buffer: failed to allocate buffer of size {_BYTES}"),
    re.compile(rf"can't allocate {_BYTES} Bytes of memory on host"),
)
_SIZED = (
    re.compile(rf"[Mm]emory allocation of size {_BYTES} failed"),
    re.compile(rf"can't allocate {_BYTES} Bytes of memory on device"),
    re.compile(rf"failed to allocate buffer, size = +{_MEBIBYTES} MiB"),
    re.compile(rf"failed to allocate +{_MEBIBYTES} Mi?B \(err="),
    re.compile(rf"failed to allocate output buffer of size {_MEBIBYTES} MiB"),
)
_ON_HOST = re.compile(r"bad_alloc|ErrorOutOfHostMemory")
_ANY = re.compile(
    r"std::bad_alloc|[Oo]ut of memory|OutOfMemory|ErrorOutOf(?:Device|Host)Memory|Insufficient Memory"
    r"|ERROR_OUT_OF_(?:DEVICE_MEMORY|HOST_MEMORY|RESOURCES)|Cannot allocate memory|NvMapMemAlloc\w*:.* error 12\b"
    r"|unable to allocate \S+ buffer|failed to allocate (?:compute \w+ buffers|buffer for \w+ cache|output buffer)"
)
_BESIDE = ("pinned", "host buffer for async", "WARNING:", "skipping reorder")  # it goes on without these
_AGAIN = "retrying without pipeline parallelism"
_REASON = re.compile(r"ggml_vulkan: (?:vk::)?\S+: Error\w+\s*$")
_VARIANT = re.compile(r"_(?:Mapped|Private|Shared|Split|REPACK)$|-REPACK$")
_HOST_NAMES = re.compile(r"CPU(?:_.*)?$|AMX.*|BLAS.*|KleidiAI.*|.*_Host$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Memory that an engine did not get.

    Attributes:
        device: the engine's name of the device, `CPU` for the host; None: it did not say.
        lacking: bytes of the buffer; None likewise.
    """

    device: str | None = None
    lacking: int | None = None


def find_shortage(lines: Sequence[str]) -> Shortage | None:
    """Return the shortage that ended the engine; None if its words tell of none."""
    told = list(_lasting(lines))
    for find in (_named_buffer, _cuda, _host):
        for index, line in enumerate(told):
            found = find(line, told[index + 1 : index + 3])
            if found is not None:
                return found
    return _unnamed(told)


def _lasting(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of what the engine could not do without."""
    again = max((index for index, line in enumerate(lines) if _AGAIN in line), default=-1)
    beside = False
    for line in lines[again + 1 :]:
        reason = beside and _REASON.search(line) is not None  # older builds: the reason is a line of its own
        beside = any(words in line for words in _BESIDE)
        if not beside and not reason:
            yield line


def _named_buffer(line: str, after: Sequence[str]) -> Shortage | None:
    found = _BUFFER.search(line)
    if found is None or found["name"] in {"buffer", "output", "compute"}:
        return None
    metal = found["name"] == "Metal"  # of all of them, there is no telling which
    return Shortage(None if metal else _device(found["name"]), int(found["bytes"]))


def _cuda(line: str, after: Sequence[str]) -> Shortage | None:
    found = _CUDA.search(line)
    if found is not None:
        return Shortage(f"CUDA{found['index']}", _size(found))
    error = _CUDA_ERROR.search(line)
    if error is None:
        return None
    current = next((match for match in map(_CURRENT.search, after) if match), None)
    api = "ROCm" if error["api"] == "HIP" else error["api"]
    return Shortage(f"{api}{current['index']}" if current else None)


def _host(line: str, after: Sequence[str]) -> Shortage | None:
    found = _first(_HOST, line)
    return None if found is None else Shortage(HOST, _size(found))


def _unnamed(told: Sequence[str]) -> Shortage | None:
    """Return a shortage of which at most the size, or the device, is said."""
    sized = next((match for line in told if (match := _first(_SIZED, line))), None)
    general = [match for match in map(_ANY.search, told) if match]
    if sized is None and not general:
        return None
    unable = next((match for match in map(_UNABLE.search, told) if match), None)
    on_host = any(_ON_HOST.search(match[0]) for match in general)
    device = _device(unable["name"]) if unable else HOST if on_host else None
    return Shortage(device, _size(sized) if sized else None)


def _first(patterns: Sequence[re.Pattern[str]], line: str) -> re.Match[str] | None:
    return next((match for pattern in patterns if (match := pattern.search(line))), None)


def _device(buffer: str) -> str:
    """Return the device of a buffer type: `RPC0[127.0.0.1:50052]` is `RPC0`, `MTL0_Private` is `MTL0`."""
    name, opening, behind = buffer.partition("[")
    name = _VARIANT.sub("", name + behind.rpartition("]")[2] if "]" in behind else name + opening + behind)
    return HOST if _HOST_NAMES.match(name) else name


def _size(found: re.Match[str]) -> int:
    groups = found.groupdict()
    return int(groups["bytes"]) if groups.get("bytes") else int(float(groups["mib"]) * _MIB)
