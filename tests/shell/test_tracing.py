"""Whether there are traces at all: nothing is imported where nobody wants them; what is wanted is there, or refused."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from structlog.testing import capture_logs

from supervisor.core.history.records import Finished, LoadRecord, Spent
from supervisor.errors import TracingUnavailable
from supervisor.service.otel import OtelExporter
from supervisor.service.tracing import Told, Tracing, operation_of, tracing_of
from tests.support.collector import collector
from tests.support.patience import PATIENCE

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


UNUSED = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "google", "supervisor.service.otel")


def test_a_daemon_without_traces_imports_nothing_for_them() -> None:
    """FastAPI imports OpenTelemetry's names, which do nothing by themselves."""
    program = (
        "import sys, supervisor.daemon.run\n"
        "from supervisor.service.tracing import tracing_of\n"
        "assert tracing_of(None, {}) is None\n"
        f"print([name for name in sys.modules if name.startswith({UNUSED})])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(
    ("endpoint", "env"),
    [
        (None, {}),
        (None, {ENDPOINT: ""}),
        (None, {"OTEL_SERVICE_NAME": "x"}),
        ("http://127.0.0.1:9", {"OTEL_SDK_DISABLED": "true"}),
        (None, {ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}),
    ],
)
def test_nobody_wants_them(endpoint: str | None, env: Mapping[str, str]) -> None:
    assert tracing_of(endpoint, env) is None


@pytest.fixture
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "supervisor.service.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)


@pytest.mark.usefixtures("_not_installed")
def test_what_the_configuration_wants_and_is_not_installed_is_an_error() -> None:
    with pytest.raises(TracingUnavailable, match=r"install `llama-supervisor\[otel\]`, or leave out `server.tracing`"):
        tracing_of("http://127.0.0.1:9", {})


@pytest.mark.usefixtures("_not_installed")
def test_what_variables_want_and_is_not_installed_is_said() -> None:
    """They are set for all programs of a machine, perhaps."""
    with capture_logs() as logs:
        assert tracing_of(None, {ENDPOINT: "http://127.0.0.1:9"}) is None
    (one,) = logs
    assert one["event"] == "tracing_unavailable"
    assert "llama-supervisor[otel]" in one["reason"]


@pytest.mark.parametrize("path", ["", "/", "/v1/traces", "/v1/traces/"])
def test_the_endpoint_may_name_the_path_of_traces(path: str) -> None:
    with collector() as receiver:
        tracing = tracing_of(receiver.url + path, {})
        assert tracing is not None
        _, end = tracing.begin([], 1000.0)
        end(request("req_1"))
        tracing.close()
        receiver.request("req_1")
        assert receiver.paths == ["/v1/traces"]


class _Endless(BaseHTTPRequestHandler):
    """Answers with 64 MiB, far more than sockets hold; notes whether somebody hung up before the end."""

    hung_up = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(64):
                self.wfile.write(bytes(1 << 20))
        except OSError:
            self.hung_up.set()


def test_the_body_of_a_collectors_answer_is_not_read() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endless) as server:
        threading.Thread(target=server.serve_forever).start()
        tracing = tracing_of(f"http://127.0.0.1:{server.server_port}", {})
        assert tracing is not None
        _, end = tracing.begin([], 1000.0)
        end(request("req_1"))
        tracing.close()
        server.shutdown()
    assert _Endless.hung_up.is_set()  # leaving the block waits for its answers


def test_the_variables_of_opentelemetry_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,deployment.environment=test")
        tracing = tracing_of(None, {ENDPOINT: receiver.url})
        assert tracing is not None
        _, end = tracing.begin([], 1000.0)
        end(request("req_1"))
        tracing.close()
        whole, _ = receiver.request("req_1")
    assert (whole.resource["service.name"], whole.resource["deployment.environment"]) == ("mine", "test")
    assert "service.version" in whole.resource


def test_what_cannot_be_sent_keeps_nobody_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, gate = OtelExporter("http://127.0.0.1:9/v1/traces"), threading.Event()
    end = exporter._provider.shutdown
    monkeypatch.setattr(exporter._provider, "shutdown", gate.wait)
    exporter.close()  # a collector that never answers would keep it waiting
    gate.set()
    end()


@pytest.mark.parametrize(
    ("headers", "trace", "sampled"),
    [
        ([(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())], TRACE, True),
        ([(b"traceparent", f"00-{TRACE}-{PARENT}-00".encode())], TRACE, False),
        ([(b"traceparent", b"nonsense\xff")], None, True),
        ([], None, True),
    ],
)
def test_the_engine_is_told_our_span_in_the_clients_trace(
    headers: list[tuple[bytes, bytes]], trace: str | None, sampled: bool
) -> None:
    exporter = OtelExporter("http://127.0.0.1:9/v1/traces")
    told = exporter.begin(headers, 1000.0).passes_on
    exporter.close()
    name, value = told.removesuffix("\r\n").split(": ")
    version, id, span, flags = value.split("-")
    assert (name, version, bool(int(flags, 16) & 1)) == ("traceparent", "00", sampled)
    assert span != PARENT
    assert (id == trace) == (trace is not None)


class _Span:
    passes_on = "traceparent: x\r\n"

    def __init__(self, ended: list[Told]) -> None:
        self._ended = ended

    def end(self, told: Told) -> None:
        self._ended.append(told)


class _Exporter:
    def __init__(self) -> None:
        self.ended: list[Told] = []

    def begin(self, headers: object, at: float) -> _Span:
        return _Span(self.ended)

    def close(self) -> None:
        pass


def request(request_id: str, model: str = "m") -> Finished:
    path = "/v1/chat/completions"
    return Finished(1000.0, request_id, path, model, None, "", False, 200, None, 10.0, 5.0, 6.0, Spent())


def loads_told(*events: tuple[str, float, str | None]) -> list[tuple[float, float, str | None]]:
    """The parts `load` of a request, from the 1000th second on, after these events of its model's engines."""
    exporter = _Exporter()
    tracing = Tracing(exporter)
    _, end = tracing.begin([], 1000.0)
    for event, at, code in events:
        tracing.engine(LoadRecord(at, "m", 1, f"engine_{event}", None, code))
    end(request("req_1"))
    return [(one.began, one.ended, one.error) for one in exporter.ended[0].parts if one.name == "load"]


def test_the_last_load_of_the_model_counts() -> None:
    assert loads_told(("start", 1001, None), ("ready", 1003, None)) == [(1001, 1003, None)]
    failed = ("gone", 1002, "model_load_failed")
    assert loads_told(("start", 1001, None), failed) == [(1001, 1002, "model_load_failed")]
    again = (("start", 1003, None), ("ready", 1004, None))
    assert loads_told(("start", 1001, None), failed, *again) == [(1003, 1004, None)]
    crashed = ("gone", 1009, "engine_lost")
    assert loads_told(("start", 1001, None), ("ready", 1003, None), crashed) == [(1001, 1003, None)]
    assert loads_told(("gone", 1002, None)) == []


def test_loads_of_very_many_models_are_forgotten() -> None:
    tracing = Tracing(_Exporter())
    for number in range(1000):
        tracing.engine(LoadRecord(1.0, f"model {number}", number, "engine_start"))
    assert len(tracing._loads) == 256
    assert "model 999" in tracing._loads


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/v1/chat/completions", "chat"),
        ("/upstream/MODEL/v1/chat/completions", "chat"),
        ("/v1/messages", "chat"),
        ("/v1/responses", "chat"),
        ("/completion", "text_completion"),
        ("/v1/completions", "text_completion"),
        ("/v1/audio/transcriptions", "transcription"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/rerank", "rerank"),
        ("/tokenize", ""),
        ("/upstream/MODEL/*", ""),
    ],
)
def test_what_a_path_does_in_the_words_of_the_conventions(path: str, operation: str) -> None:
    assert operation_of(path) == operation
