"""The log of each model, through all of its engines."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from supervisor.engines.log import OutputLog
from supervisor.pool.inflight import InflightRequest


class EngineLogs:
    """Made when they are first asked for.

    Args:
        place: the file of a model's log.
        clock: seconds since 1970.
    """

    def __init__(self, place: Callable[[str], Path], clock: Callable[[], float] = time.time) -> None:
        self._place = place
        self._clock = clock
        self._logs: dict[str, OutputLog] = {}

    def of(self, model: str) -> OutputLog:
        """The log of a model's engines."""
        if model not in self._logs:
            self._logs[model] = OutputLog(self._place(model))
        return self._logs[model]

    def reached(self, request: InflightRequest) -> None:
        """Note that a request is with an engine now, before the engine's own lines about it."""
        when = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.of(request.model).note(
            f"{when} supervisor: request {request.request_id} to engine {request.engine}: {request.path}"
        )

    def __contains__(self, model: str) -> bool:
        """Return whether a model had an engine, or was about to, since the daemon began."""
        return model in self._logs

    def forget(self, model: str) -> None:
        """Let go of the log of a model that nobody asks for any more; its file stays."""
        log = self._logs.pop(model, None)
        if log is not None:
            log.close()

    def close(self) -> None:
        """End those who follow."""
        for log in self._logs.values():
            log.close()
