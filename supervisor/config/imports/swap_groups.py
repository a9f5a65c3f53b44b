"""Convert groups of llama-swap into groups of models that may not be loaded together.

There a load unloads: members of a group that swaps unload each other, a load of an exclusive group unloads all others
but persistent ones. Here groups say who may not be loaded together, which comes to the same: two models are never
together where the load of one would unload the other. A persistent model is in the way of nobody but its own group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from supervisor.config.write import unique_ids

MOST_MODELS = 500
Pair: TypeAlias = frozenset[str]


class SwapGroup(NamedTuple):
    """A group, with those of its members that exist here."""

    members: tuple[str, ...]
    swap: bool
    exclusive: bool
    persistent: bool


def pinned(groups: Iterable[SwapGroup]) -> Iterator[str]:
    """Yield the models that stay: those of persistent groups whose members do not take turns."""
    for group in groups:
        if group.persistent and (not group.swap or len(group.members) == 1):
            yield from group.members


def apart(groups: Mapping[str, SwapGroup], models: Sequence[str]) -> dict[str, list[str]]:
    """Return groups of ours, of which no two members are ever loaded together; `models`: all there are, in order."""
    pairs = {pair for group in groups.values() for pair in _pairs(group, groups, models)}
    found = list(_cliques(pairs, models))
    names = unique_ids([_name(one, groups) for one in found])
    return dict(zip(names, found, strict=True))


def _pairs(group: SwapGroup, groups: Mapping[str, SwapGroup], models: Sequence[str]) -> Iterator[Pair]:
    stay = {member for one in groups.values() if one.persistent for member in one.members}
    free = [member for member in dict.fromkeys(group.members) if group.persistent or member not in stay]
    if group.swap:
        yield from map(frozenset, combinations(free, 2))
    if group.exclusive and not group.persistent:
        others = [model for model in models if model not in stay and model not in group.members]
        yield from (frozenset((member, other)) for member in free for other in others)


def _cliques(pairs: set[Pair], models: Sequence[str]) -> Iterator[list[str]]:
    """Yield sets of models of which every two are a pair, until each pair is in one."""
    left = set(pairs)
    for one, other in combinations(models, 2):
        if frozenset((one, other)) not in left:
            continue
        found = [one, other]
        for model in models:
            if model not in found and all(frozenset((model, known)) in pairs for known in found):
                found.append(model)
        left.difference_update(map(frozenset, combinations(found, 2)))
        yield [model for model in models if model in found]


def _name(members: Sequence[str], groups: Mapping[str, SwapGroup]) -> str:
    """Return the name of the group that most of these members belong to."""
    return max(groups, key=lambda name: len(set(members) & set(groups[name].members)) * 2 - len(groups[name].members))
