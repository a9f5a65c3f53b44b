"""Make OpenTelemetry's spans, and send them to a collector by OTLP over HTTP. No other module imports OpenTelemetry.

Its own variables count: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_…` (the
queue has 2048 spans unless they say otherwise; what is too many is dropped) and `OTEL_EXPORTER_OTLP_…`. A thread of the
library sends; what it cannot send it drops. Nothing is set for the process as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from requests import PreparedRequest, Response, Session

from supervisor import __version__
from supervisor.core.history.spans import Part
from supervisor.service.tracing import Told

_CLOSE_S: Final = 2.0  # for a collector that does not answer any more
_NS: Final = 1_000_000_000
_NAMES: Final = {b"traceparent": "traceparent", b"tracestate": "tracestate"}
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class _Deaf(Session):
    """Reads no body of an answer: the exporter looks at status and headers alone, and a body may have no end."""

    def send(self, request: PreparedRequest, **how: Any) -> Response:
        """Send, and hang up once status and headers are there."""
        answer = super().send(request, **{**how, "stream": True})
        answer.close()
        return answer


class OtelExporter:
    """The exporter. endpoint: the address that spans are posted to; None: as the variables have it."""

    def __init__(self, endpoint: str | None) -> None:
        own = Resource.create({"service.name": "llama-supervisor", "service.version": __version__})
        resource = own.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, session=_Deaf())))
        self._tracer = self._provider.get_tracer("llama-supervisor", __version__)

    def begin(self, headers: Sequence[tuple[bytes, bytes]], at: float) -> OtelSpan:
        """Begin the span of a request; the client's span is its parent."""
        given = {_NAMES[name]: value.decode("latin-1") for name, value in headers if name in _NAMES}
        parent = _PROPAGATOR.extract(given, Context()) if given else Context()
        span = self._tracer.start_span("request", parent, SpanKind.SERVER, start_time=_ns(at))
        return OtelSpan(self._tracer, span)

    def close(self) -> None:
        """Send what waits, for a bounded time."""
        sending = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        sending.start()
        sending.join(_CLOSE_S)


class OtelSpan:
    """The span of a request that goes on.

    Attributes:
        passes_on: header lines for the engine.
    """

    __slots__ = ("_context", "_span", "_tracer", "passes_on")

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = trace.set_span_in_context(span, Context())
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context)
        self.passes_on = "".join(f"{name}: {value}\r\n" for name, value in carrier.items())

    def end(self, told: Told) -> None:
        """Take in how it ended; nothing is computed for a span that is not sampled."""
        span = self._span
        if span.is_recording():
            span.update_name(told.name)
            span.set_attributes(told.attributes)
            _note(span, told.error)
            for part in told.parts:
                self._child(part)
        span.end(_ns(told.ended))

    def _child(self, part: Part) -> None:
        child = self._tracer.start_span(
            part.name, self._context, attributes=part.attributes, start_time=_ns(part.began)
        )
        _note(child, part.error)
        child.end(_ns(part.ended))


def _note(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))


def _ns(seconds: float) -> int:
    return int(seconds * _NS)
