"""Estimate the bytes that llama-server allocates for a model, by part, layer and device.

    estimate(spec, options)            what a way of starting the model takes, or why the engine would refuse it
    max_context(spec, options, bytes)  the largest context for a budget
    demand(table, context, options)    what layers and devices take, whichever device gets which layer

Rules are those of llama.cpp b11434; docs/memory.md tells which are measured.
"""

from supervisor.core.memory.context import CELL_PAD
from supervisor.core.memory.demand import (
    ContextDemand,
    Demand,
    Shape,
    WeightTable,
    context_demand,
    demand,
    refuse,
    weight_table,
)
from supervisor.core.memory.estimate import estimate
from supervisor.core.memory.invert import max_context
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.memory.placement import place_layers
from supervisor.core.memory.result import DeviceEstimate, Growth, LayerEstimate, MemoryEstimate, Refusal

__all__ = [
    "CELL_PAD",
    "ContextDemand",
    "Demand",
    "DeviceEstimate",
    "EstimateOptions",
    "Growth",
    "LayerEstimate",
    "MemoryEstimate",
    "Refusal",
    "Shape",
    "WeightTable",
    "context_demand",
    "demand",
    "estimate",
    "max_context",
    "place_layers",
    "refuse",
    "weight_table",
]
