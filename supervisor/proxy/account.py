"""The account of one relayed request: what becomes of it, told to those who keep count when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from starlette.types import Scope

from supervisor.core.history.records import CLIENT_GONE, LONGEST, Finished, Spent
from supervisor.core.requests.keys import Key
from supervisor.errors import EngineError, SupervisorError
from supervisor.system.requestid import current_id

Observer = Callable[[Finished], None]
"""Is told of a request when it has ended; must return at once."""

Begins = Callable[[Sequence[tuple[bytes, bytes]], float], tuple[str, Observer]]
"""Begins a trace, of a request's headers and arrival; returns header lines for the engine, and what ends the trace."""

_NOTHING: Final = Spent()
_UNNAMED: Final = EngineError.code  # until it is known what it is


def ignored(record: Finished) -> None:
    """Tell nobody."""


class Account:
    """Of a request that arrives now, on a path of the table.

    Attributes:
        key: what limits it. model: the one that it means, once that is known. stream: its client wants one.
        calls: tool calls in its answer. passes_on: header lines for the engine.
    """

    __slots__ = (
        *("_also", "_at", "_began", "_client", "_code", "_first", "_observer", "_path", "_queued", "_spent", "_status"),
        *("calls", "key", "model", "passes_on", "stream"),
    )

    def __init__(self, observer: Observer, path: str, scope: Scope, key: Key | None) -> None:
        self._observer = observer
        self._also: tuple[Observer, ...] = ()
        self._path = path
        self._at, self._began = time.time(), time.perf_counter()
        self.key = key
        self._client = _agent(scope)
        self._status = 200
        self._code: str | None = None
        self._queued: float | None = None
        self._first: float | None = None
        self._spent = _NOTHING
        self.model: str | None = None
        self.stream = False
        self.calls = 0
        self.passes_on = ""

    def follow(self, observer: Observer) -> None:
        """Tell one more observer when it ends."""
        self._also += (observer,)

    def traced(self, begins: Begins, scope: Scope) -> None:
        """Have a trace made of it, which began when it did."""
        self.passes_on, end = begins(scope["headers"], self._at)
        self.follow(end)

    def means(self, model: str, *, stream: bool) -> None:
        """Note the model that it means, and whether its client wants a stream."""
        self.model, self.stream = model, stream

    def has_engine(self) -> None:
        """An engine is there; a second one does not count."""
        if self._queued is None:
            self._queued = time.perf_counter() - self._began

    def elapsed(self) -> tuple[float, float]:
        """Return the seconds since the request arrived, and those of them until it had an engine."""
        return time.perf_counter() - self._began, self._queued or 0.0

    def has_first(self) -> None:
        """The first token is there."""
        if self._first is None:
            self._first = time.perf_counter() - self._began

    def spent(self, spent: Spent) -> None:
        """Note what an engine said of its answer; of a second answer, that counts."""
        self._spent = spent

    def answered(self, status: int) -> None:
        """Note the status of an engine's answer."""
        self._status = status
        self._code = None if status < 400 else _UNNAMED

    def refused(self, status: int, code: str) -> None:
        """Note the engine's error that the client is told, unless another was told before."""
        if self._code in {None, _UNNAMED}:
            self._status, self._code = status, code

    def failed(self, error: SupervisorError, *, in_stream: bool = False) -> None:
        """Note the error that the client is told."""
        self._code = error.code
        if not in_stream:
            self._status = error.status

    def __enter__(self) -> Account:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        """Note how it ended, and tell the observer."""
        if isinstance(error, SupervisorError):
            self.failed(error)
        elif error is not None:
            self._left()
        key = None if self.key is None else self.key.rules.name
        record = Finished(
            *(self._at, current_id() or "", self._path, self.model, key, self._client, self.stream),
            *(self._status, self._code, time.perf_counter() - self._began, self._queued, self._first, self._spent),
            self.calls,
        )
        self._observer(record)
        for also in self._also:
            also(record)

    def _left(self) -> None:
        """Note that nobody hears the end."""
        self._status, self._code = CLIENT_GONE, "client_gone"


def _agent(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"user-agent":
            text: str = value[:LONGEST].decode("latin-1")
            return text
    return ""
