"""The memory that our engines may use on each device and on the host. Bytes everywhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory of one device, or of the host (`CPU`), for our engines.

    Attributes:
        total_bytes: of the hardware.
        usable_bytes: for all our engines together: total − used by others − reserve.
        reserve_bytes: what is kept back on it for each engine: runtime context, fragmentation.
        backend: as `Device.backend`; `cpu` for the host.
        shares_host: what it holds counts on the host too.
        endpoint: `host:port` of an RPC worker; its devices serve one engine at a time, all together.
        others_bytes: what other programs use; it is not in `usable_bytes`.
    """

    name: str
    backend: str
    total_bytes: int
    usable_bytes: int
    reserve_bytes: int = 0
    shares_host: bool = False
    endpoint: str | None = None
    others_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Budgets:
    """The machine as the planner sees it: devices in llama.cpp's order, and the host."""

    devices: tuple[Budget, ...]
    host: Budget
