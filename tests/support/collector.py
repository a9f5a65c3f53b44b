"""A collector of traces on 127.0.0.1: takes OTLP over HTTP, as real ones do, and keeps what it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.patience import PATIENCE

Value = str | bool | int | float | list[str]


@dataclass(frozen=True)
class Collected:
    """A span as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    began: int
    ended: int
    error: str | None
    attributes: dict[str, Value]
    resource: dict[str, Value]


class Collector:
    """What has arrived, by trace."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self._spans: list[Collected] = []
        self._arrived = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        """Keep the spans of one call."""
        found = [
            _collected(span, _values(resource.resource.attributes))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._arrived:
            self.paths.append(path)
            self._spans += found
            self._arrived.notify_all()

    def request(self, request_id: str) -> tuple[Collected, dict[str, Collected]]:
        """The span of a request, and its parts by name; waits for them. They all end before it does."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._of(request_id) is not None, PATIENCE), "no span of the request"
            whole = self._of(request_id)
            assert whole is not None
            return whole, {one.name: one for one in self._spans if one.parent == whole.id}

    def seen(self) -> set[object]:
        """The ids of all requests whose spans have arrived."""
        with self._arrived:
            return {one.attributes.get("llama_supervisor.request_id") for one in self._spans}

    def _of(self, request_id: str) -> Collected | None:
        mine = (one for one in self._spans if one.attributes.get("llama_supervisor.request_id") == request_id)
        return next(mine, None)


def _collected(span: Span, resource: dict[str, Value]) -> Collected:
    error = span.status.message if span.status.code == 2 else None
    return Collected(
        *(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.kind),
        *(span.start_time_unix_nano, span.end_time_unix_nano, error, _values(span.attributes), resource),
    )


def _values(attributes: Any) -> dict[str, Value]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Value:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [one.string_value for one in value.array_value.values]
    found: Value = getattr(value, kind)
    return found


@contextmanager
def collector() -> Iterator[Collector]:
    """One for the length of the block."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
