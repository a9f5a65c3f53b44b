"""Check the parameters of a request, and turn them into those that llama-server has.

Only the fields that a request has are looked at, each once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.params.engine import ENGINE
from supervisor.core.params.fates import KEPT, Constraint, Fields
from supervisor.core.params.foreign import FOREIGN
from supervisor.core.params.rows import Parameter
from supervisor.errors import InvalidRequest

PARAMETERS: Final[Mapping[str, Parameter]] = {row.name: row for row in (*ENGINE, *FOREIGN)}
"""Every parameter that is known, by name."""

_SHOWN = 60  # characters of a value that an error repeats


@dataclass(frozen=True, slots=True)
class Fitted:
    """What has to change in a request.

    Attributes:
        fields: to set. dropped: to take out.
    """

    fields: Fields
    dropped: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.fields or self.dropped)


_NOTHING: Final = Fitted({}, frozenset())


def fit(asked: Fields, *, opaque: bool = False) -> Fitted:
    """Return what has to change in a request for llama-server to do what is asked. Raise InvalidRequest.

    Args:
        asked: the request's fields.
        opaque: a text may stand for a field that was too large to be looked at; the engine judges it.
    """
    fields: dict[str, object] = {}
    dropped: set[str] = set()
    for name, value in asked.items():
        row = PARAMETERS.get(name)
        if row is None or (opaque and isinstance(value, str) and not isinstance(row.fate, Constraint)):
            continue
        if row.fate.drops:
            dropped.add(name)
        if value is None:
            continue
        check(row, value, opaque=opaque)
        if row.fate is not KEPT:
            fields |= row.fate.fields(name, value, {**asked, **fields} if fields else asked)
    return Fitted(fields, frozenset(dropped)) if fields or dropped else _NOTHING


def check(row: Parameter, value: object, *, opaque: bool = False) -> None:
    """Raise InvalidRequest for a value that the parameter does not take, naming its bounds."""
    if opaque and isinstance(value, str):
        raise InvalidRequest(f"`{row.name}` cannot be read beside a field this large; shorten it.", param=row.name)
    if not row.kind.admits(value):
        raise InvalidRequest(f"`{row.name}` must be {row.kind.text}; it is {_told(value)}.", param=row.name)


def _told(value: object) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
