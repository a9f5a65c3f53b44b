"""From a header to bytes: what llama-server allocates for a model, by part, layer and device.

    estimate(spec, options)            what a way of starting the model takes, or why the engine would refuse it
    max_context(spec, options, bytes)  the largest context for a budget

Rules are those of llama.cpp b11434; docs/memory.md tells which are measured.
"""

from supervisor.core.memory.estimate import estimate
from supervisor.core.memory.invert import max_context
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.result import DeviceEstimate, Growth, LayerEstimate, MemoryEstimate, Refusal

__all__ = [
    "DeviceEstimate",
    "EstimateOptions",
    "Growth",
    "LayerEstimate",
    "MemoryEstimate",
    "Refusal",
    "estimate",
    "max_context",
]
