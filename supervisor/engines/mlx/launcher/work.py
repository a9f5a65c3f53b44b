"""A prompt to be continued, and what is told of it on the way."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Sampler: TypeAlias = Callable[[Any], Any]
Processor: TypeAlias = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Read:
    """So many tokens of the prompt are read, the cached ones among them."""

    tokens: int


@dataclass(frozen=True)
class Written:
    """A token. last: why it is the last one, `stop` (then it is no part of the text) or `length`; empty: it is not."""

    token: int
    last: str = ""


Told: TypeAlias = "Read | Written"


@dataclass(eq=False)
class Work:
    """A prompt to be continued.

    Attributes:
        tokens: of the prompt, at least one. most: to write, at least one.
        told: what happens; written by the thread that computes.
        gone: nobody waits for it any more; set by whoever has asked.
        cached: tokens of the prompt that need not be read.
    """

    tokens: list[int]
    most: int
    sampler: Sampler
    processors: list[Processor]
    told: queue.SimpleQueue[Told] = field(default_factory=queue.SimpleQueue)
    gone: bool = False
    cached: int = 0
