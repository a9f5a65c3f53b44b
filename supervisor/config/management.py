"""The settings of a model beside its launch: how long it stays, its priority, its requests; and groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from supervisor.config.base import Flag, Json, JsonObject, Name, Names, Positive, Priority, Seconds, Strict
from supervisor.core.models.filters import PROTECTED, RequestFilters
from supervisor.core.params.fit import fit
from supervisor.core.params.settings import ReasoningOnly, RequestSettings, sampling_defaults
from supervisor.core.schedule import ModelPolicy
from supervisor.core.toolcalls.mode import ToolMode
from supervisor.errors import InvalidRequest

_RANGE = re.compile(r"(\d{1,3})(?:\.\.(\d{1,3}))?")
_MOST_REPLICAS = 256

Replicas = (
    Annotated[int, Field(ge=1, le=_MOST_REPLICAS)] | Annotated[str, Field(pattern=rf"^{_RANGE.pattern}$", max_length=8)]
)


def _refuse_faults(judge: Callable[[Mapping[str, Json]], object], parameters: Mapping[str, Json]) -> None:
    """Raise ValueError for parameters that a request with them would be refused for."""
    try:
        judge(parameters)
    except InvalidRequest as error:
        raise ValueError(error.message.rstrip(".")) from None


class FilterSettings(Strict):
    """Changes to parameters of requests: those of `strip` are removed, then those of `set` replace or are added."""

    set: JsonObject = Field(default_factory=dict)
    strip: Names = ()

    @field_validator("set", "strip")
    @classmethod
    def _not_protected(cls, value: dict[str, Json] | tuple[str, ...]) -> dict[str, Json] | tuple[str, ...]:
        found = sorted(PROTECTED.intersection(value))
        if found:
            raise ValueError(f"{found[0]} is not a parameter that can be changed")
        if isinstance(value, dict):
            _refuse_faults(fit, value)
        return value

    def filters(self) -> RequestFilters:
        """Return these settings for the relay."""
        return RequestFilters.of(self.set, self.strip)


class Management(Strict):
    """The daemon's treatment of a model. Only the configuration may set this."""

    ttl: Seconds | None = None
    pin: Flag = False
    preload: Flag = False
    priority: Priority = 0
    replicas: Replicas = 1
    concurrency: Positive | None = None
    filters: FilterSettings = FilterSettings()
    sampling: JsonObject = Field(default_factory=dict)
    max_seconds: Seconds | None = None
    reasoning_only: ReasoningOnly = "keep"
    tool_calls: ToolMode | None = None

    @field_validator("sampling")
    @classmethod
    def _are_defaults(cls, value: dict[str, Json]) -> dict[str, Json]:
        _refuse_faults(sampling_defaults, value)
        return value

    @field_validator("replicas", mode="before")
    @classmethod
    def _is_range(cls, value: object) -> int | str:
        found = _RANGE.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
        if found is None or not 1 <= int(found[1]) <= int(found[2] or found[1]) <= _MOST_REPLICAS:
            raise ValueError(f"must be a number from 1 to {_MOST_REPLICAS}, or MIN..MAX")
        return int(found[1]) if found[2] is None else f"{int(found[1])}..{int(found[2])}"

    def requests(self) -> RequestSettings:
        """Return these settings for the relay."""
        return RequestSettings(sampling_defaults(self.sampling), self.max_seconds, self.reasoning_only)

    def policy(self, groups: frozenset[str] = frozenset(), *, alone: bool = False) -> ModelPolicy:
        """Return these settings for the scheduler; `groups` are the exclusive ones that the model is in."""
        least, _, most = str(self.replicas).partition("..")
        return ModelPolicy(
            ttl=self.ttl,
            pinned=self.pin,
            preload=self.preload,
            priority=self.priority,
            replicas_min=int(least),
            replicas_max=int(most or least),
            concurrency=self.concurrency,
            groups=groups,
            alone=alone,
        )


class GroupSettings(Strict):
    """Models that may not be loaded together: never two of `exclusive` ones; `alone`: nothing beside one of them."""

    members: Annotated[tuple[Name, ...], Field(min_length=1, max_length=10_000)]
    rule: Literal["exclusive", "alone"] = "exclusive"
