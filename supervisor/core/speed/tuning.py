"""Search for the launch options with which a model is fastest: what may be changed, and what is worth measuring.

One kind of change after the other (threads, batch, cache, experts, speculation): each begins with the best so far. So
a search measures a sum of choices, not their product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Changes: TypeAlias = Mapping[str, object]
"""Launch options by name."""

GAIN: Final = 1.03
"""How many times faster a change has to be to count: less is noise."""

_BATCHES: Final = (256, 512, 1024, 2048)
_CACHES: Final = ("f16", "q8_0")
_MTP: Final = "draft-mtp"
_NGRAM: Final = "ngram-mod"


@dataclass(frozen=True, slots=True)
class Job:
    """What the speed is of: tokens of a prompt, and of the answer behind it."""

    prompt: int
    answer: int

    def seconds(self, prefill: float, decode: float) -> float:
        """Return the time of the job at these tokens per second; endless where one is 0."""
        return self.prompt / prefill + self.answer / decode if prefill > 0 and decode > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides which changes there are.

    Attributes:
        cores, processors: physical and logical ones. n_cpu_moe: layers whose experts the plan has on the host.
        given: options that somebody set, which are not changed.
    """

    cores: int
    processors: int
    n_cpu_moe: int = 0
    given: frozenset[str] = frozenset()


def kinds(facts: Facts) -> tuple[tuple[Changes, ...], ...]:
    """Return the changes to try, by kind, without those of options that somebody set."""
    threads = sorted({max(1, facts.cores // 2), facts.cores, facts.processors})
    experts = range(max(0, facts.n_cpu_moe - 2), facts.n_cpu_moe)
    every: tuple[tuple[Changes, ...], ...] = (
        tuple({"threads": count} for count in threads),
        tuple({"ubatch_size": size, "batch_size": max(size, _BATCHES[-1])} for size in _BATCHES),
        tuple({"cache_type_k": kind, "cache_type_v": kind} for kind in _CACHES),
        tuple({"n_cpu_moe": count} for count in experts),
        tuple({"spec_type": [kind]} for kind in (_MTP, _NGRAM)),
    )
    return tuple(left for one in every if (left := tuple(some for some in one if not some.keys() & facts.given)))


def promising(foretold: Iterable[tuple[Changes, float | None]], most: int) -> list[tuple[Changes, float | None]]:
    """Return the changes that are worth measuring: the fastest by what is foretold, unknown ones last.

    Args:
        foretold: each with its seconds; None: nothing can be said of it.
    """
    return sorted(foretold, key=lambda one: float("inf") if one[1] is None else one[1])[:most]


def is_better(seconds: float, than: float) -> bool:
    """Return whether a measured time is enough below another to count."""
    return seconds * GAIN < than
