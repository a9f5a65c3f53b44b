"""Take in the records of what has ended, and hand them to all who keep count."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.history.records import Finished, LoadRecord
from supervisor.core.schedule.events import EngineId, Failure, ModelId
from supervisor.service.history import History
from supervisor.service.tallies import Tallies

_START, _READY, _GONE = "engine_start", "engine_ready", "engine_gone"


class Records:
    """Those of one daemon.

    Args:
        clock: seconds since 1970.
        also: is told of engines, too.
    """

    def __init__(
        self,
        history: History,
        tallies: Tallies,
        clock: Callable[[], float],
        also: Callable[[LoadRecord], None] | None = None,
    ) -> None:
        self._history = history
        self._tallies = tallies
        self._clock = clock
        self._also = also
        self._starts: dict[EngineId, float] = {}
        self._elsewhere: Callable[[Finished], None] | None = None

    def send(self, elsewhere: Callable[[Finished], None]) -> None:
        """In a copy of the process: have another one take in the requests that end."""
        self._elsewhere = elsewhere

    def request(self, record: Finished) -> None:
        """Take in a request that has ended."""
        if self._elsewhere is not None:
            self._elsewhere(record)
            return
        self._tallies.count(record)
        self._history.add(record)

    def engine(self, event: str, model: ModelId, engine: EngineId, failure: Failure | None) -> None:
        """Take in what happened to an engine."""
        now = self._clock()
        if event == _START:
            self._starts[engine] = now
        began = self._starts.pop(engine, None) if event in {_READY, _GONE} else None
        seconds = now - began if event == _READY and began is not None else None
        code, reason = (None, None) if failure is None else (failure.code, failure.message)
        record = LoadRecord(now, model, engine, event, seconds, code, reason)
        self._tallies.count_load(record)
        self._history.add(record)
        if self._also is not None:
            self._also(record)
