"""Change the parameters of a model's requests before the engine sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from supervisor.core.params.fit import PARAMETERS
from supervisor.core.params.settings import OVERRIDING
from supervisor.core.text.members import set_fields, without

PROTECTED = frozenset({"model", "stream"})
"""Parameters that filters may not change: the model asked, and the form of the answer."""


@dataclass(frozen=True, slots=True)
class RequestFilters:
    """Parameters by name: those of `strip` are removed, then those of `set` replace the client's or are added."""

    set: Mapping[str, object] = field(default_factory=dict)
    strip: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fixed: Mapping[str, object], strip: Iterable[str]) -> Self:
        """Return those for what is set and what is stripped, whichever of a parameter's names a client gives it."""
        return cls(dict(fixed), frozenset(name for one in (*strip, *fixed) for name in _names(one)))

    def __bool__(self) -> bool:
        return bool(self.set or self.strip)

    def apply(self, body: bytes, asked: Mapping[str, object]) -> tuple[bytes, Mapping[str, object]]:
        """Return the changed body and its content. A request that needs no change keeps its bytes."""
        kept = {name: value for name, value in asked.items() if name not in self.strip}
        changed = {**kept, **self.set}
        if changed == asked:
            return body, asked
        text = body if len(kept) == len(asked) else without(body, self.strip)
        return set_fields(text, self.set), changed


def _names(name: str) -> tuple[str, ...]:
    """Return all names of the parameter that has this one."""
    row = PARAMETERS.get(name)
    return (name,) if row is None or row.default_for is None else OVERRIDING[row.default_for]
