"""First guesses where nothing was measured: makers' figures of memory bandwidth and arithmetic, and careful guesses.

Bandwidth is bytes/s of the data sheet, arithmetic dense multiply-adds/s at 16 bits. Of these, programs reach a share.
"""

from __future__ import annotations

import re

from supervisor.core.devices import Device
from supervisor.core.speed.machine import Rates

_GPUS: tuple[tuple[str, float, float], ...] = (  # name, GB/s, tera multiply-adds/s
    ("B200", 8000, 1100),
    ("H200", 4800, 495),
    ("GH200", 4000, 495),
    ("H100.*PCIe", 2000, 378),
    ("H100", 3350, 495),
    ("A100.*80", 2039, 156),
    ("A100", 1555, 156),
    ("L40", 864, 181),
    ("L4", 300, 60),
    ("A10", 600, 62),
    ("T4", 320, 32),
    ("V100", 900, 62),
    ("RTX 5090", 1792, 105),
    ("RTX 5080", 960, 56),
    ("RTX 5070 Ti", 896, 44),
    ("RTX 4090", 1008, 82),
    ("RTX 4080", 717, 49),
    ("RTX 4070", 504, 29),
    ("RTX 4060", 272, 15),
    ("RTX 3090", 936, 36),
    ("RTX 3080", 760, 30),
    ("RTX 3060", 360, 13),
    ("MI300X", 5300, 650),
    ("MI250", 1600, 180),
    ("7900 XTX", 960, 61),
    ("7900 XT", 800, 51),
    ("M[1-4] Ultra", 800, 14),
    ("M[1-4] Max", 400, 7),
    ("M[1-4] Pro", 200, 3),
)
_UNKNOWN_GPU = (200.0, 5.0)
_HOST = (20.0, 0.02)  # of one or two memory channels, and per core
_REACHED_BYTES, _REACHED_ARITHMETIC = 0.6, 0.25
_LAYER_S = 60e-6
_TOKEN_S = 500e-6
_COPY_S = 1 / 12e9  # a byte over PCIe 4.0 with 16 lanes, from memory that is not pinned


def published_rates(device: Device) -> Rates:
    """Return the guess for a device by its name; a careful one where the name is not known."""
    for name, bandwidth, arithmetic in _GPUS:
        if re.search(rf"\b{name}\b", device.description, re.IGNORECASE):
            return _rates(bandwidth, arithmetic)
    return _rates(*_UNKNOWN_GPU)


def host_rates(cores: int | None) -> Rates:
    """Return the guess for a host with so many physical cores; None: unknown, four."""
    bandwidth, per_core = _HOST
    return _rates(bandwidth, per_core * (cores or 4))


def _rates(gigabytes: float, tera: float) -> Rates:
    per_byte = 1 / (gigabytes * 1e9 * _REACHED_BYTES)
    per_multiplication = 1 / (tera * 1e12 * _REACHED_ARITHMETIC)
    return Rates({
        "read:q8_0": per_byte,
        "read_experts": per_byte / 10,
        "multiply_many:q8_0": per_multiplication,
        "experts_many:q8_0": per_multiplication / 10,
        "values_many": 200 * per_multiplication,
        "read_many": per_byte,
        "attend": per_multiplication,
        "attend_rest": per_multiplication / 10,
        "attend_many": 2 * per_multiplication,
        "cache": per_byte,
        "state": per_byte,
        "state_many": per_byte,
        "copy": _COPY_S,
        "layer": _LAYER_S,
        "layer_many": 4 * _LAYER_S,
        "token": _TOKEN_S,
        "request": 10 * _TOKEN_S,
        "vocabulary": 10e-9,
    })
