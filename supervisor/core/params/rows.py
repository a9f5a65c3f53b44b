"""The form of a row in the tables of parameters."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.params.fates import KEPT, Fate
from supervisor.core.params.kinds import Kind


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of requests.

    Attributes:
        name: as clients write it.
        whose: the API or the servers that have it.
        kind: the values that it takes, null aside, which always means that it is not given.
        fate: what becomes of it.
        default_for: a model may have a default for it, and the name under which requests may override that.
    """

    name: str
    whose: str
    kind: Kind
    fate: Fate = KEPT
    default_for: str | None = None
