"""The state as listeners are told it: looked at once after a change, however many of them listen.

A look at a model asks the system about its process and its files. What differs between two looks is written out once,
too: who listens costs the bytes that are sent, and no more.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor.service.requests import RequestStatus
from supervisor.service.status import ModelStatus

_LASTS_S = 1.0  # what changes without anybody saying so is seen after that long


@dataclass(frozen=True, eq=False)
class Look:
    """What there was in one moment, by id. `told`: the events since earlier looks, by their `number`."""

    number: int
    models: Mapping[str, ModelStatus]
    requests: Mapping[int, RequestStatus]
    told: dict[int, str] = field(default_factory=dict)

    def since(self, before: Look) -> str:
        """The events from an earlier look to this one; empty where nothing differs."""
        found = self.told.get(before.number)
        if found is None:
            events = (*_differences("model", "model_removed", before.models, self.models),)
            found = "".join((*events, *_differences("request", "request_done", before.requests, self.requests)))
            self.told[before.number] = found
        return found

    def limited(self, sees: Callable[[str], bool]) -> Look:
        """Return what of it is seen by who sees only these models."""
        models = {model: status.by_itself() for model, status in self.models.items() if sees(model)}
        requests = {number: one for number, one in self.requests.items() if sees(one.model)}
        return Look(self.number, models, requests)


class Looks:
    """The newest look.

    Args:
        models, requests: what there is now; each has an `id`.
        changed: is set with every change, and cleared here.
    """

    def __init__(
        self,
        models: Callable[[], Sequence[ModelStatus]],
        requests: Callable[[], Sequence[RequestStatus]],
        changed: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models = models
        self._requests = requests
        self._changed = changed
        self._clock = clock
        self._last: Look | None = None
        self._until = 0.0

    def now(self) -> Look:
        """The state as it is."""
        last = self._last
        if last is not None and not self._changed.is_set() and self._clock() < self._until:
            return last
        self._changed.clear()
        models = {status.id: status for status in self._models()}
        requests = {request.id: request for request in self._requests()}
        self._last = Look(1 if last is None else last.number + 1, models, requests)
        self._until = self._clock() + _LASTS_S
        return self._last


def event(name: str, data: Mapping[str, Any]) -> str:
    """One event as text."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _differences(
    name: str,
    gone: str,
    before: Mapping[Any, ModelStatus | RequestStatus],
    now: Mapping[Any, ModelStatus | RequestStatus],
) -> Iterator[str]:
    for key, shown in now.items():
        if key not in before or _lasting(before[key]) != _lasting(shown):
            yield event(name, shown.to_json())
    for key in before.keys() - now.keys():
        yield event(gone, {"id": key})


def _lasting(shown: ModelStatus | RequestStatus) -> ModelStatus | RequestStatus:
    """Without what changes by itself, and is no event."""
    return replace(shown, rss_bytes=None) if isinstance(shown, ModelStatus) else shown
