"""What travels in a pipeline of devices: every input in four copies, and what layers take from layers elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.memory.borrowed import bytes_by_layer, lenders
from supervisor.core.memory.cache import Cache
from supervisor.core.memory.context import Context
from supervisor.core.memory.cuts import PIPELINE
from supervisor.core.memory.facts import Facts
from supervisor.core.spec import Layout, ModelSpec

_STREAMS_MADE = 28  # rows of four residual streams in four copies where they are made, and
_STREAMS_SENT = 48  # where they arrive, twice


def travelling_bytes(
    facts: Facts, context: Context, caches: Sequence[Cache], places: Sequence[int], device: int, everywhere: bool
) -> int:
    """Return a device's bytes beside its inputs. `everywhere`: the placement stands for others."""
    used = sorted({place for place in places if place >= 0})
    is_first, is_last = device == used[0], device == used[-1] and not everywhere
    size = 0 if is_first else _choice_bytes(facts.spec, context, caches)
    size += _lent_bytes(facts, context, caches, places, device)
    return size + _shift_bytes(facts, context, 0 if is_first else 1 + is_last)


def _shift_bytes(facts: Facts, context: Context, place: int) -> int:
    """Return the bytes of token shifts on a device; `place`: 0 for the first one, 2 for the last one, 1 between."""
    rows = facts.spec.architecture.graph.shift_rows
    return rows[place] * 4 * context.n_tokens * facts.widths.embd + facts.widths.state * context.states if rows else 0


def _choice_bytes(spec: ModelSpec, context: Context, caches: Sequence[Cache]) -> int:
    """Return what travels of an indexer in a pipeline: a mask or a choice of cells for layers that have none."""
    indexer, layout = spec.indexer, spec.architecture.layout
    if indexer is None or not (layout is Layout.MSA or not all(indexer.layers[: spec.n_layer])):
        return 0
    cells = max((cache.cells for cache in caches), default=0)
    return PIPELINE.copies * 4 * context.n_tokens * (3 * cells // 2 + spec.hyper_connections * spec.n_embd)


def _lent_bytes(facts: Facts, context: Context, caches: Sequence[Cache], places: Sequence[int], device: int) -> int:
    """Return what travels for the layers on a device in a pipeline of layers that share caches (Gemma 3n, Gemma 4).

    Each layer has copies of its own: of the cache that it borrows from a layer elsewhere, and of its embeddings.
    """
    spec = facts.spec
    if not facts.widths.per_layer and all(spec.kv_layers[: spec.n_layer]):
        return 0
    sizes = bytes_by_layer(caches)
    here = [layer for layer in range(spec.n_layer) if places[layer] == device]
    far = sum(sizes.get(lender, 0) for lender in lenders(spec, here) if places[lender] != device)
    row, copies = 4 * context.n_tokens, PIPELINE.copies
    if device == places[0]:
        made = (copies - 1) * facts.widths.per_layer + (
            _STREAMS_MADE if spec.architecture.graph.altup else 0
        ) * facts.widths.embd
    else:
        made = copies * spec.per_layer_embd * len(here)
        made += (_STREAMS_SENT if spec.architecture.graph.altup else 0) * facts.widths.embd
    return copies * far + row * made
