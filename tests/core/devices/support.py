"""Captured texts and made GPUs."""

from __future__ import annotations

from pathlib import Path

from supervisor.core.devices.physical import AMD, NVIDIA, Gpu

DATA = Path(__file__).parent / "data"
GIB = 1 << 30


def captured(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def nvidia_gpus(count: int, name: str = "NVIDIA H200") -> tuple[Gpu, ...]:
    """GPUs in PCI order whose UUIDs differ from the first digit on."""
    return tuple(
        Gpu(NVIDIA, n, name, 24 * GIB, 23 * GIB, f"0000:{n + 1:02x}:00.0", f"GPU-{n:x}bcd{n}000-0000")
        for n in range(count)
    )


def amd_gpus(orders: tuple[int, ...]) -> tuple[Gpu, ...]:
    """GPUs in PCI order with these numbers in the runtime's order."""
    return tuple(
        Gpu(AMD, n, "AMD GPU", 24 * GIB, 23 * GIB, f"0000:{n + 1:02x}:00.0", f"GPU-{n:016x}", order=order)
        for n, order in enumerate(orders)
    )
