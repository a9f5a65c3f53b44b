"""The reserves on a device: one for the device, and one for each engine that uses it.

The first is room for what nobody accounts for: fragments between buffers, a desktop that opens one more window (what
it holds already counts as used by others). The second is what a process takes beside the buffers that the estimate
knows: the runtime's context, kernels, libraries, pools. A measured overhead of an earlier start replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Reserve:
    """The bytes kept back on a device and for each engine on it, and the source of the figures."""

    device_bytes: int
    engine_bytes: int
    source: str


DEFAULTS: Mapping[str, Reserve] = {
    "cuda": Reserve(
        256 * _MIB, 512 * _MIB,
        "not measured yet; reports of 300 to 600 MiB per process for context, cuBLAS and the memory pool",
    ),
    "hip": Reserve(256 * _MIB, 512 * _MIB, "not measured; taken as CUDA's, whose kernels and libraries it mirrors"),
    "musa": Reserve(256 * _MIB, 512 * _MIB, "not measured; taken as CUDA's"),
    "sycl": Reserve(256 * _MIB, 512 * _MIB, "not measured; taken as CUDA's: a runtime with a BLAS library as well"),
    "vulkan": Reserve(256 * _MIB, 192 * _MIB, "not measured; pipelines and staging buffers, no BLAS library"),
    "metal": Reserve(
        128 * _MIB, 128 * _MIB, "not measured; Metal's own limit keeps a quarter to a third for the system already"
    ),
    "rpc": Reserve(
        64 * _MIB, 16 * _MIB,
        "measured on a worker without a GPU: below 1 MiB beside its buffers for a client; one with a GPU holds its "
        "context already, so that it counts as used",
    ),
    "cpu": Reserve(
        1024 * _MIB, 64 * _MIB,
        "per machine what llama.cpp's own --fit leaves free; per engine measured: 8 MiB of private memory with the "
        "built-in model, buffers included; the rest is for the vocabulary of a large model",
    ),
}  # fmt: skip
"""By back end; `cpu` is the host."""

_OTHER = Reserve(256 * _MIB, 256 * _MIB, "not measured; a back end without figures of its own")


@dataclass(frozen=True, slots=True)
class Reserves:
    """The defaults, changed by the user: bytes by device name (`CUDA0`, `CPU`) or back end (`cuda`, `cpu`).

    `limit_bytes`: the most that all our engines together may use; none by default.
    """

    device_bytes: Mapping[str, int] = field(default_factory=dict)
    engine_bytes: Mapping[str, int] = field(default_factory=dict)
    limit_bytes: Mapping[str, int] = field(default_factory=dict)

    def within(self, name: str, backend: str, usable: int) -> int:
        """Return `usable` bytes, or the limit of all our engines on the device where that is less."""
        return min(usable, self.limit_bytes.get(name, self.limit_bytes.get(backend, usable)))

    def for_device(self, name: str, backend: str) -> int:
        """Return the bytes kept back on the device itself."""
        default = DEFAULTS.get(backend, _OTHER).device_bytes
        return self.device_bytes.get(name, self.device_bytes.get(backend, default))

    def for_engine(self, name: str, backend: str) -> int:
        """Return the bytes kept back on the device for each engine."""
        default = DEFAULTS.get(backend, _OTHER).engine_bytes
        return self.engine_bytes.get(name, self.engine_bytes.get(backend, default))
