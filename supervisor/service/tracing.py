"""Trace requests, where OpenTelemetry is configured: by `server.tracing`, or by its own variables.

Nothing of its SDK is imported where it is not: `service/otel` is the one module that imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

import structlog

from supervisor.core.history.records import Finished, LoadRecord
from supervisor.core.history.spans import Loaded, Operation, Part, Value, attributes_of, error_of, name_of, parts_of
from supervisor.core.routes import UPSTREAM, route_of
from supervisor.errors import TracingUnavailable
from supervisor.proxy.account import Observer

_log = structlog.get_logger()

_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SIGNAL: Final = "/v1/traces"
_LOADS_KEPT: Final = 256
_START, _READY, _GONE = "engine_start", "engine_ready", "engine_gone"
_OPERATIONS: Final = {"completion": "text_completion", "raw": "text_completion", "transcript": "transcription"}


class Begun(Protocol):
    """The span of a request that goes on.

    Attributes:
        passes_on: header lines by which an engine would make it the parent of its own.
    """

    @property
    def passes_on(self) -> str: ...

    def end(self, told: Told) -> None:
        """Take in how it ended."""
        ...


class Exporter(Protocol):
    """What makes spans and sends them to a collector, in a thread of its own."""

    def begin(self, headers: Sequence[tuple[bytes, bytes]], at: float) -> Begun:
        """Begin the span of a request, of its headers and its arrival (seconds since 1970)."""
        ...

    def close(self) -> None:
        """Send what waits, for a bounded time."""
        ...


class Told:
    """How a request ended, in the words of a trace; made only where somebody asks."""

    def __init__(self, record: Finished, load: Loaded | None) -> None:
        self._record = record
        self._load = load
        self._operation = operation_of(record.path)
        self.ended = record.at + record.seconds

    @property
    def name(self) -> str:
        """The span's name."""
        return name_of(self._record, self._operation)

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The span's attributes."""
        return attributes_of(self._record, self._operation)

    @property
    def error(self) -> str | None:
        """The code, where it failed and the client is not to blame."""
        return error_of(self._record)

    @property
    def parts(self) -> Sequence[Part]:
        """Its parts, each a span of its own."""
        return tuple(parts_of(self._record, self._load))


class Tracing:
    """The traces of one daemon."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._loads: dict[str, Loaded] = {}

    def begin(self, headers: Sequence[tuple[bytes, bytes]], at: float) -> tuple[str, Observer]:
        """Begin the trace of a request; return header lines for the engine, and what ends the trace."""
        begun = self._exporter.begin(headers, at)

        def end(record: Finished) -> None:
            begun.end(Told(record, self._loads.get(record.model or "")))

        return begun.passes_on, end

    def engine(self, record: LoadRecord) -> None:
        """Take in what happened to an engine: the last load of each model is a part of requests that waited for it."""
        before = self._loads.get(record.model)
        if record.event == _START:
            self._loads.pop(record.model, None)
            self._loads[record.model] = Loaded(record.at)
            if len(self._loads) > _LOADS_KEPT:
                del self._loads[next(iter(self._loads))]
        elif before is not None and before.ended is None and record.event in {_READY, _GONE}:
            self._loads[record.model] = Loaded(before.began, record.at, record.code)

    def close(self) -> None:
        """Send what waits, for a bounded time."""
        self._exporter.close()


def tracing_of(endpoint: str | None, env: Mapping[str, str]) -> Tracing | None:
    """Return what traces requests; None where nobody wants it.

    endpoint: of the collector, as configured; without one, the variables of OpenTelemetry say whether and where to.
    Raises TracingUnavailable where the configuration wants it and it is not installed.
    """
    if not (endpoint or any(env.get(name) for name in _VARIABLES)) or _is_off(env):
        return None
    try:
        made = importlib.import_module("supervisor.service.otel")
    except ImportError as error:
        said = f"OpenTelemetry's SDK is not installed ({error.name}): install `llama-supervisor[otel]`"
        if endpoint:
            raise TracingUnavailable(f"{said}, or leave out `server.tracing`.") from error
        _log.warning("tracing_unavailable", reason=f"{said}, or unset {' and '.join(_VARIABLES)}")
        return None
    return Tracing(cast(Exporter, made.OtelExporter(_address(endpoint))))


def operation_of(path: str) -> Operation:
    """Return what a path of the table of paths does, in OpenTelemetry's words; empty where nothing is generated."""
    below = path.removeprefix(f"{UPSTREAM}MODEL")
    route = route_of(below)
    if route is None or not (route.generates or route.vectors):
        return ""
    if route.vectors:
        return "rerank" if "rank" in route.path else "embeddings"
    return _OPERATIONS.get(route.kind or "", "chat")


def _is_off(env: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry's own variables turn it off."""
    disabled = env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or env.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def _address(endpoint: str | None) -> str | None:
    """Return the address that spans are posted to; None: as the variables have it."""
    if not endpoint:
        return None
    plain = endpoint.rstrip("/")
    return plain if plain.endswith(_SIGNAL) else plain + _SIGNAL
