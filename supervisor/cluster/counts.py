"""How many requests were passed on to each node, and how many of them in vain."""

from __future__ import annotations

from collections.abc import Mapping, Set

from supervisor.service.clusters import Forwarded


class Counts:
    """Counts them by the node's name."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def begun(self, node: str) -> None:
        """Count a request."""
        self._counts.setdefault(node, [0, 0])[0] += 1

    def failed(self, node: str) -> None:
        """Count one that the node did not answer, or whose answer it broke off."""
        self._counts.setdefault(node, [0, 0])[1] += 1

    def of(self, nodes: Set[str]) -> Mapping[str, Forwarded]:
        """Return the counts of these nodes, and forget any other."""
        for name in self._counts.keys() - nodes:
            del self._counts[name]
        return {name: Forwarded(*self._counts.get(name, (0, 0))) for name in sorted(nodes)}
