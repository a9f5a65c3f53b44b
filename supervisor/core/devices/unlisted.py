"""What a machine seems to have where no engine can be asked: the drivers' GPUs, named as an engine would name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.core.devices.engine_list import Listed
from supervisor.core.devices.join import Found
from supervisor.core.devices.physical import AMD, APPLE, NVIDIA, Gpu
from supervisor.core.devices.visibility import cuda_visible, hip_visible


def guess_list(found: Found, env: Mapping[str, str]) -> tuple[Listed, ...]:
    """The list that a build with every back end would print, as far as the drivers tell."""
    return (
        *_listed("CUDA", "cuda", cuda_visible(env, found.of(NVIDIA)).gpus),
        *_listed("ROCm", "hip", hip_visible(env, found.of(AMD)).gpus),
        *_listed("MTL", "metal", found.of(APPLE)),
    )


def _listed(prefix: str, backend: str, gpus: Sequence[Gpu]) -> list[Listed]:
    sized = [(gpu, gpu.total_bytes or 0) for gpu in gpus]
    return [
        Listed(f"{prefix}{number}", backend, gpu.name, total, total if gpu.free_bytes is None else gpu.free_bytes)
        for number, (gpu, total) in enumerate(sized)
    ]
