"""Buffers that contexts allocate: caches and compute buffers of the main context, and of the one that drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from supervisor.core.memory.cache import Cache, CacheRule
from supervisor.core.memory.carried import carried_bytes
from supervisor.core.memory.compute import compute_buffers
from supervisor.core.memory.context import Context
from supervisor.core.memory.facts import Facts
from supervisor.core.memory.options import EstimateOptions


@dataclass(frozen=True, slots=True)
class Buffers:
    """Caches of the main context and of the draft, and bytes of compute buffers per device, the host last.

    `lead`: bytes more on the first device, for weights that stay on the host.
    """

    caches: tuple[Cache, ...]
    drafted: tuple[Cache, ...]
    compute: list[int]
    lead: int = 0

    def kv_layers(self, n_layers: int) -> list[int]:
        """Return bytes of all caches by layer."""
        found = [0] * n_layers
        for cache in self.caches + self.drafted:
            for layer, size in cache.layer_bytes().items():
                found[layer] += size
        return found


def allocate(
    facts: Facts, options: EstimateOptions, context: Context, places: Sequence[int], everywhere: bool = False
) -> Buffers:
    """Return the buffers of a placement.

    `places` is as `place_layers` gives it, `everywhere` as in `compute_buffers`.
    """
    caches = _make(facts.caches, context, options.cache_type_k, options.cache_type_v)
    compute = compute_buffers(facts, options, context, caches, places, everywhere)
    lead = max(0, carried_bytes(facts, options, context, caches, places, compute[0]) - compute[0])
    if not options.drafts:
        return Buffers(caches, (), compute, lead)
    drafting = replace(context, rollbacks=0, n_outputs=context.n_seq)  # the second context runs the NextN blocks alone
    drafted = _make(facts.draft, drafting, options.cache_type_k_draft, options.cache_type_v_draft)
    more = compute_buffers(facts, options, drafting, drafted, places, everywhere)
    return Buffers(caches, drafted, [main + draft for main, draft in zip(compute, more, strict=True)], lead)


def _make(rules: Sequence[CacheRule], context: Context, type_k: str, type_v: str) -> tuple[Cache, ...]:
    return tuple(rule.allocate(context, type_k, type_v) for rule in rules)
