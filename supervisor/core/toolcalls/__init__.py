"""Tool calls that models write as text: found in every dialect while the text streams, typed by the tools' schemas."""

from supervisor.core.toolcalls.dialects import REGISTRY
from supervisor.core.toolcalls.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Channel,
    Dropped,
    Event,
    LeftAsText,
    Text,
)
from supervisor.core.toolcalls.options import Options
from supervisor.core.toolcalls.recoverer import Recoverer, counted_ids

__all__ = [
    "REGISTRY",
    "CallArguments",
    "CallEnd",
    "CallStart",
    "Channel",
    "Dropped",
    "Event",
    "LeftAsText",
    "Options",
    "Recoverer",
    "Text",
    "counted_ids",
]
