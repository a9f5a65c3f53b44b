"""Keep the requests that are being answered: who waits, who runs, and a way to cancel one by its number or id.

A request costs one object and one insertion here; everything else is work of those who ask.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from supervisor.core.schedule.events import EngineId, ModelId
from supervisor.core.stream.meter import SoFar
from supervisor.errors import RequestCancelled, RequestNotFound
from supervisor.system.requestid import current_id, new_id

Reached: TypeAlias = "Callable[[InflightRequest], None]"

_SHOWN = 256  # characters of a path: every list and event of requests repeats it


def _untold(_request: InflightRequest) -> None:
    return


class InflightRequest:
    """A request.

    Attributes:
        since: seconds of the pool's clock.
        fetching: what it names by an address is being fetched.
        request_id: the one in its response's head. answer: the id that its answer has told its client.
    """

    __slots__ = (
        *("_cancelled", "_engine", "_heard", "_reached", "_task"),
        *("answer", "fetching", "id", "model", "path", "request_id", "since", "stream"),
    )

    def __init__(
        self, arrival: tuple[int, float], model: ModelId, path: str, *, stream: bool, reached: Reached
    ) -> None:
        self.id, self.since = arrival
        self.model = model
        self.path = path
        self.stream = stream
        self.request_id = current_id() or new_id()
        self.answer: str | None = None
        self._reached = reached
        self.fetching = False
        self._engine: EngineId | None = None
        self._heard: Callable[[], SoFar] = SoFar
        self._task = asyncio.current_task()
        self._cancelled = False

    @property
    def engine(self) -> EngineId | None:
        """The engine that answers it; None while it waits for one."""
        return self._engine

    @contextmanager
    def fetches(self) -> Iterator[None]:
        """Note that it is fetched for, within the block."""
        self.fetching = True
        try:
            yield
        finally:
            self.fetching = False

    def is_with(self, engine: EngineId | None) -> None:
        """Note that this engine answers it; None: it waits for one again."""
        self._engine, self._heard = engine, SoFar
        if engine is not None:
            self._reached(self)

    def is_heard_by(self, heard: Callable[[], SoFar]) -> None:
        """Note who counts the answer of the engine that it is with."""
        self._heard = heard

    def so_far(self) -> SoFar:
        """Return what has come of its answer."""
        return self._heard()

    def is_known_as(self, answer: str | None) -> None:
        """Note the id of its answer."""
        self.answer = answer

    def cancel(self) -> None:
        """Cancel the request: whatever it waits for is cancelled, and it answers `request_cancelled`."""
        if not self._cancelled and self._task is not None:
            self._cancelled = True
            self._task.cancel()

    def was_cancelled(self) -> RequestCancelled | None:
        """Return the error to answer if `cancel` and nobody else caused the CancelledError in hand."""
        if not self._cancelled or self._task is None or self._task.uncancel() > 0:
            return None
        return RequestCancelled(f"Request {self.id} was cancelled by `DELETE /api/v1/requests/{self.id}`.")


class Inflight:
    """All requests, in the order of arrival.

    Args:
        clock: the pool's.
        reached: is told of a request whenever an engine begins to answer it; None: nobody is.
    """

    def __init__(self, clock: Callable[[], float], reached: Reached | None = None) -> None:
        self._clock = clock
        self._reached = reached or _untold
        self._numbers = itertools.count(1)
        self._requests: dict[int, InflightRequest] = {}
        self._watchers: set[asyncio.Event] = set()

    def __iter__(self) -> Iterator[InflightRequest]:
        return iter(tuple(self._requests.values()))

    def __len__(self) -> int:
        return len(self._requests)

    @contextmanager
    def entered(self, model: ModelId, path: str, *, stream: bool) -> Iterator[InflightRequest]:
        """Enter a request that the present task answers within the block."""
        request = self.enter(model, path, stream=stream)
        try:
            yield request
        finally:
            self.leave(request)

    def enter(self, model: ModelId, path: str, *, stream: bool) -> InflightRequest:
        """A request that the present task answers; `leave` takes it out."""
        arrival = next(self._numbers), self._clock()
        request = InflightRequest(arrival, model, path[:_SHOWN], stream=stream, reached=self._reached)
        self._requests[request.id] = request
        self._tell()
        return request

    def leave(self, request: InflightRequest) -> None:
        """Take a request out that is over."""
        del self._requests[request.id]
        self._tell()

    def cancel(self, name: str) -> InflightRequest:
        """Cancel the request of that number or, where it is none, all that have that id; return the oldest of them.

        Raise RequestNotFound where none is in flight any more.
        """
        meant = [one for one in self if (str(one.id) if name.isdigit() else one.request_id) == name]
        if not meant:
            raise RequestNotFound(
                f"No request {name} is in flight; GET /api/v1/requests lists those that are.", param="id"
            )
        for one in meant:
            one.cancel()
        return meant[0]

    def cancel_answer(self, answer: str, sees: Callable[[ModelId], bool] = lambda model: True) -> InflightRequest:
        """Cancel the request whose answer has this id. Raise RequestNotFound where there is none of a model seen."""
        request = next((one for one in self._requests.values() if one.answer == answer), None)
        if request is None or not sees(request.model):
            raise RequestNotFound(
                f"No answer with the id '{answer}' is being streamed; an answer is known until it is complete.",
                param="response_id",
            )
        request.cancel()
        return request

    @contextmanager
    def watch(self, changed: asyncio.Event) -> Iterator[None]:
        """Set `changed` whenever a request comes or goes, within the block."""
        self._watchers.add(changed)
        try:
            yield
        finally:
            self._watchers.discard(changed)

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher.set()
