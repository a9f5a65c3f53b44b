"""Plans made by hand: decisions without the figures that led to them."""

from __future__ import annotations

from supervisor.core.memory import EstimateOptions, MemoryEstimate
from supervisor.core.plan import Placement

_NOTHING = MemoryEstimate("llama", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (), 0, (), (), ())


def placement(
    devices: tuple[str, ...],
    *,
    ctx_size: int | None = None,
    tensor_split: tuple[int, ...] = (),
    n_gpu_layers: int = 0,
    parallel: int | None = None,
) -> Placement:
    """A model on these devices, layer by layer."""
    return Placement(
        model="m",
        devices=devices,
        split_mode="layer",
        main_gpu=0,
        n_gpu_layers=n_gpu_layers,
        tensor_split=tensor_split,
        n_cpu_moe=0,
        options=EstimateOptions(ctx_size=ctx_size, parallel=parallel),
        estimate=_NOTHING,
        wanted_ctx=0,
        native_ctx=0,
        fitting_ctx=0,
        parts=(),
        evict=(),
        why=(),
    )
