"""Observations for tests of the store."""

from __future__ import annotations

from supervisor.core.engine_output.footprint import Card, DeviceFootprint, Footprint
from supervisor.core.learn.history import Observation
from supervisor.core.learn.identity import Start, options_hash, plain_settings
from supervisor.core.memory import EstimateOptions


def observation(
    number: int = 0, *, model: str = "model", at: float | None = None, build: int | None = 11434
) -> Observation:
    """One of two GPUs; another number is another way of starting."""
    settings = plain_settings(
        EstimateOptions(ctx_size=1024 + number, devices=("CUDA0", "CUDA1")), extra=("--lora", "ü")
    )
    return Observation(
        Start(model, options_hash(settings), settings, "engine", "cuda", ("NVIDIA L4", "NVIDIA L4"), build),
        Footprint(
            (DeviceFootprint("CUDA0", 5 << 40, 2, 3, 4, 5, 6, 7, 4), DeviceFootprint("CPU", number)),
            *(4096, 1024, 4),
            cards=(Card("CUDA0", "NVIDIA L4", "0000:0f:00.0", 1 << 34),),
        ),
        {"CUDA0": 44, "CPU": 0},
        {"CUDA0": 400 << 20},
        float(number) if at is None else at,
    )
