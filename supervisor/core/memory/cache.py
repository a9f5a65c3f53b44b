"""The elements of every cache layout: groups of layers whose rows are kept for a number of cells.

A layout says which groups a model has (`CacheRule`: header only); a context turns each into a `Cache` with cells,
streams and bytes, as llama.cpp logs it in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from supervisor.core.gguf import row_bytes
from supervisor.core.memory.context import CELL_PAD, Context, padded


class CacheLayer(NamedTuple):
    """The elements that one layer keeps per token; `v_width` is 0 where there are no values."""

    layer: int
    k_width: int
    v_width: int


@dataclass(frozen=True, slots=True)
class CacheRule:
    """A group of layers that are cached alike.

    Attributes:
        name: attention, window, index, compressed.
        window: cells that a slot needs beside the micro-batch; None: all of the context.
        ratio: tokens per cell.
        per_slot: every slot has a stream of its own, even where the other caches are unified.
        widest_v: width of the values where flash attention is off: they are transposed then and padded to the widest.
    """

    name: str
    layers: tuple[CacheLayer, ...]
    window: int | None = None
    ratio: int = 1
    per_slot: bool = False
    widest_v: int = 0

    def cells(self, context: Context) -> int:
        """Return the rows per stream."""
        if self.ratio > 1:
            return padded(max(1, -(-context.cells // self.ratio)), CELL_PAD)
        if self.window is None or context.swa_full:
            return context.cells
        slots = 1 if self.per_slot else context.n_seq // context.streams
        return padded(min(context.cells, self.window * slots + context.n_ubatch), CELL_PAD)

    def allocate(self, context: Context, type_k: str, type_v: str) -> Cache:
        rows = self.layers
        if not context.flash_attn:
            rows = tuple(row._replace(v_width=self.widest_v) if row.v_width else row for row in rows)
        streams = context.n_seq if self.per_slot else context.streams
        return Cache(self.name, self.cells(context), streams, rows, type_k, type_v)


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache as it is allocated."""

    name: str
    cells: int
    streams: int
    layers: tuple[CacheLayer, ...]
    type_k: str
    type_v: str

    def layer_bytes(self) -> dict[int, int]:
        """Return bytes by layer. Layers of one width are the rule, so each width is computed once."""
        total = self.cells * self.streams
        sizes: dict[tuple[int, int], int] = {}
        found = {}
        for layer, k_width, v_width in self.layers:
            size = sizes.get((k_width, v_width))
            if size is None:
                size = (row_bytes(self.type_k, k_width) + row_bytes(self.type_v, v_width)) * total
                sizes[k_width, v_width] = size
            found[layer] = size
        return found
