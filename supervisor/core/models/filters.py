"""Change the parameters of a model's requests before the engine sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.core.text.members import set_fields, without

PROTECTED = frozenset({"model", "stream"})
"""Parameters that filters may not change: the model asked, and the form of the answer."""


@dataclass(frozen=True, slots=True)
class RequestFilters:
    """Parameters by name: those of `strip` are removed, then those of `set` replace the client's or are added."""

    set: Mapping[str, object] = field(default_factory=dict)
    strip: frozenset[str] = frozenset()

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
