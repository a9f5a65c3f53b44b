"""Place layers on devices by llama.cpp's rule, in its single-precision arithmetic."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from struct import pack, unpack

from supervisor.core.memory.options import EstimateOptions
from supervisor.core.spec import ModelSpec

HOST = "CPU"


def place_layers(spec: ModelSpec, options: EstimateOptions) -> tuple[int, ...]:
    """Return the place of each layer, the output layer last: an index in `options.devices`, -1 for the host.

    NextN blocks count as layers here, even where they are left out.
    """
    total = spec.n_layer_all + 1
    asked = options.n_gpu_layers
    wanted = total if asked is None or asked < 0 else asked
    active = min(wanted, total) if options.devices else 0
    start = max(total - wanted, 0)
    if not active:
        return (-1,) * total
    if len(options.devices) == 1:
        return (-1,) * start + (0,) * (total - start)
    bounds = _bounds(options)
    return tuple(
        -1 if layer < start else bisect_right(bounds, _single((layer - start) / active)) for layer in range(total)
    )


def _bounds(options: EstimateOptions) -> list[float]:
    """Return the end of each device's share, from 0 to 1."""
    shares = (*options.tensor_split, *(0.0 for _ in options.devices))[: len(options.devices)]
    if not any(shares):
        shares = (1.0,) * len(options.devices)
    sums = list(accumulate(shares, lambda total, share: _single(total + _single(share)), initial=0.0))[1:]
    return [_single(partial / sums[-1]) for partial in sums]


def _single(number: float) -> float:
    return float(unpack("f", pack("f", number))[0])
