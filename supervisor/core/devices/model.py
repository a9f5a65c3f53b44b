"""The hardware of a machine: the devices that llama.cpp can place tensors on, and the host. Bytes everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HOST = "CPU"
"""The host's name where devices are named: llama.cpp's own."""

CUDA_LIKE = frozenset({"cuda", "hip", "musa"})
"""Back ends that share CUDA's kernels, alignment and extra copies."""


def lent_name(worker: str, device: str) -> str:
    """Return the name of the device of a worker that has joined, in plans and in the configuration: `studio/CUDA0`."""
    return f"{worker}/{device}"


def is_lent(name: str) -> bool:
    """Return whether a device is that of a worker that has joined."""
    return "/" in name


def is_lent_processor(name: str) -> bool:
    """Return whether a device is the processor of a worker that has joined."""
    return name.endswith(f"/{HOST}")


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, with every name it has.

    Attributes:
        name: llama.cpp's in an engine that sees all devices we may use: `CUDA0`, `ROCm0`, `Vulkan0`, `MTL0`, `RPC0`.
        backend: lower case: cuda, hip, musa, vulkan, metal, sycl, opencl, rpc, …
        total_bytes, free_bytes: by the source that knows best; free at the time of the probe, nothing subtracted.
        index: the physical number in PCI order, whatever masks say; None where nothing tells.
        shares_host: its memory is the host's (integrated GPU, Apple): what it takes, the host loses.
        processes: bytes by process id, where the driver tells; what we can see of others is in it too.
        endpoint: `host:port` of an RPC worker.
        round_trip_s: of the network to it; None: unknown, or there is none.
        selector: what its back end's variable of visible devices calls it (`child.visible_env`); None: no variable.
    """

    name: str
    backend: str
    description: str
    total_bytes: int
    free_bytes: int
    index: int | None = None
    uuid: str | None = None
    pci: str | None = None
    compute_capability: str | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    shares_host: bool = False
    endpoint: str | None = None
    selector: str | None = None
    round_trip_s: float | None = None
    processes: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine's own memory, within the limit of the control group that we run in."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A probe that failed or took too long: its name, the reason, and what follows from it."""

    probe: str
    message: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The devices and the host at one moment; `devices` in llama.cpp's order."""

    host: Host
    devices: tuple[Device, ...] = ()
    problems: tuple[Problem, ...] = ()
