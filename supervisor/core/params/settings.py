"""The settings of a model for its requests, which a client may override or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from supervisor.core.params.fates import Fields, Renamed
from supervisor.core.params.fit import PARAMETERS, check
from supervisor.errors import InvalidRequest

ReasoningOnly: TypeAlias = Literal["keep", "answer"]
"""What becomes of a reply that is nothing but thoughts: it stays that, or is shown as the answer."""

OVERRIDING: Final[Mapping[str, tuple[str, ...]]] = {
    row.default_for: tuple(other.name for other in PARAMETERS.values() if other.default_for == row.default_for)
    for row in PARAMETERS.values()
    if row.default_for is not None
}
"""The parameters that may have a default, each with all its names."""

_IN_FORMS: Final = frozenset({"max_tokens", "temperature"})  # `convert_transcriptions_to_chatcmpl` makes them numbers
_ENDLESS: Final = -1  # tokens; without a number an engine goes on to the end, too


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What is set for the requests of a model.

    Attributes:
        sampling: parameters for requests that do not have them, under llama-server's names.
        max_seconds: after which an answer is ended, from the moment at which an engine is asked; None: never.
        reasoning_only: what becomes of a reply that is nothing but thoughts, where a request does not say.
    """

    sampling: Mapping[str, object] = field(default_factory=dict)
    max_seconds: float | None = None
    reasoning_only: ReasoningOnly = "keep"

    def missing(self, asked: Fields) -> Fields:
        """Return the defaults for all that a request does not have under any name."""
        return {
            name: value
            for name, value in self.sampling.items()
            if all(asked.get(other) is None for other in OVERRIDING[name])
        }

    def missing_in_form(self, asked: Fields) -> Fields:
        """Return those of the defaults that the engine reads in a form, whose fields are texts."""
        return {name: value for name, value in self.missing(asked).items() if name in _IN_FORMS and value != _ENDLESS}


def sampling_defaults(given: Mapping[str, object]) -> dict[str, object]:
    """Return defaults under llama-server's names. Raise InvalidRequest for one that is none, or out of bounds."""
    found: dict[str, object] = {}
    for name, value in given.items():
        row = PARAMETERS.get(name)
        if row is None or row.default_for is None:
            raise InvalidRequest(
                f"`{name}` is no parameter that has a default; docs/parameters.md lists them.", param=name
            )
        check(row, value)
        found[row.fate.to if isinstance(row.fate, Renamed) else row.default_for] = value
    return found
