"""The gRPC server of a backend: its calls, limits and token, and its end."""

from __future__ import annotations

import hmac
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from supervisor.cli.localai.backend import Backend
from supervisor.cli.localai.call import MOST_CALLS, Call, Gate
from supervisor.cli.localai.wire import TooMany, Wire
from supervisor.core.localai import messages as m
from supervisor.core.localai.refusals import status_of, text_of
from supervisor.core.localai.watching import watch_seconds
from supervisor.errors import AddressInUse, InvalidRequest, SupervisorError

MOST_MESSAGE = 50 << 20
"""Bytes of a message, as LocalAI has it."""

_QUICK = 1 << 16  # bytes of a message that only asks for the state and is not counted
_MORE_CALLS = 16  # that ask for the state while all others are taken
_STOP_SECONDS = 1.0
_ALIVE_MS = 20_000  # a client that vanished without a word is noticed after twice this
_STRANGE = (LookupError, TypeError, ValueError, AttributeError)  # of an answer that is not as it should be
_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_MESSAGE),
    ("grpc.max_send_message_length", MOST_MESSAGE),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", _ALIVE_MS),
    ("grpc.keepalive_timeout_ms", _ALIVE_MS),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True)
class Rpc:
    """A call: the backend's method, and its messages. quick: it only asks for the state."""

    method: Callable[[Any, Call], Any]
    request: type
    reply: type
    streams: bool = False
    quick: bool = False


def calls_of(backend: Backend) -> dict[str, Rpc]:
    """Return the calls by their names; what is not here is answered with UNIMPLEMENTED."""
    return {
        "Health": Rpc(backend.health, m.Nothing, m.Reply, quick=True),
        "LoadModel": Rpc(backend.load_model, m.ModelOptions, m.Result),
        "Predict": Rpc(backend.predict, m.PredictOptions, m.Reply),
        "PredictStream": Rpc(backend.predict_stream, m.PredictOptions, m.Reply, streams=True),
        "Embedding": Rpc(backend.embedding, m.PredictOptions, m.EmbeddingResult),
        "Rerank": Rpc(backend.rerank, m.RerankRequest, m.RerankResult),
        "TokenizeString": Rpc(backend.tokenize_string, m.PredictOptions, m.Tokenization),
        "Detokenize": Rpc(backend.detokenize, m.DetokenizeRequest, m.DetokenizeResponse),
        "Status": Rpc(backend.status, m.Nothing, m.StatusResponse, quick=True),
        "GetMetrics": Rpc(backend.get_metrics, m.Nothing, m.MetricsResponse, quick=True),
        "ModelMetadata": Rpc(backend.model_metadata, m.ModelOptions, m.ModelMetadata),
        "Free": Rpc(backend.free, m.Nothing, m.Result),
    }


class Server:
    """Serves a backend.

    Args:
        backend: what the calls do.
        address: HOST:PORT; port 0 is any free one.
        token: that every call has to bring; empty: none.
        gate: how many calls and bytes are let in.

    Attributes:
        port: the one that it listens on.
    """

    def __init__(self, backend: Backend, address: str, token: str, gate: Gate | None = None) -> None:
        self._token = f"Bearer {token}".encode() if token else b""
        self._gate = gate or Gate()
        most = MOST_CALLS + _MORE_CALLS
        self._server = grpc.server(ThreadPoolExecutor(most), options=_OPTIONS, maximum_concurrent_rpcs=most)
        calls = calls_of(backend)
        wire = Wire({kind for rpc in calls.values() for kind in (rpc.request, rpc.reply)})
        handlers = {name: self._handler(rpc, wire) for name, rpc in calls.items()}
        served = grpc.method_handlers_generic_handler(m.SERVICE, handlers)
        self._server.add_generic_rpc_handlers((_Doorkeeper(self._knows, served),))
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise AddressInUse(f"Cannot listen on {address}: it is taken, or not an address of this machine.")

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self) -> None:
        """Take no more calls, and end those at work."""
        self._server.stop(_STOP_SECONDS).wait()

    def _handler(self, rpc: Rpc, wire: Wire) -> Any:
        read: Callable[[bytes], Any] = wire.reader(rpc.request)
        make = grpc.unary_stream_rpc_method_handler if rpc.streams else grpc.unary_unary_rpc_method_handler
        answer = self._answers if rpc.streams else self._answer
        return make(
            lambda data, context: answer(rpc, lambda: _understood(read, data), len(data), context),
            response_serializer=wire.writer(rpc.reply),
        )

    def _answer(self, rpc: Rpc, read: Callable[[], Any], size: int, context: grpc.ServicerContext) -> Any:
        call = self._admitted(context)
        try:
            if rpc.quick and size <= _QUICK:
                return rpc.method(read(), call)
            with self._gate.passed(size):
                return rpc.method(read(), call)
        except SupervisorError as error:
            _refuse(context, call, error)
        except _STRANGE as error:
            _refuse(context, call, SupervisorError(f"An answer is not understood ({type(error).__name__}: {error})."))

    def _answers(self, rpc: Rpc, read: Callable[[], Any], size: int, context: grpc.ServicerContext) -> Iterator[Any]:
        call = self._admitted(context)
        try:
            with self._gate.passed(size):
                yield from rpc.method(read(), call)
        except SupervisorError as error:
            _refuse(context, call, error)
        except _STRANGE as error:
            _refuse(context, call, SupervisorError(f"An answer is not understood ({type(error).__name__}: {error})."))

    def _admitted(self, context: grpc.ServicerContext) -> Call:
        """Return the call of a client, unless it has left."""
        call = Call()
        if not context.add_callback(call.leave):
            context.abort(grpc.StatusCode.CANCELLED, "the client has left")
        return call

    def _knows(self, metadata: Any) -> bool:
        """Return whether a call has brought the token."""
        given = dict(metadata or ()).get("authorization", "")
        said = given if isinstance(given, bytes) else given.encode()
        return not self._token or hmac.compare_digest(said, self._token)


class _Doorkeeper(grpc.GenericRpcHandler):
    """Hands on the calls of clients that may call. Of another's call not even the message is taken from the wire."""

    def __init__(self, knows: Callable[[Any], bool], served: Any) -> None:
        self._knows = knows
        self._served = served

    def service(self, handler_call_details: Any) -> Any:
        """Return what answers a call. One that is refused is taken for a stream: those are read on demand."""
        if self._knows(handler_call_details.invocation_metadata):
            return self._served.service(handler_call_details)
        return grpc.stream_unary_rpc_method_handler(_unknown)


def _unknown(_: Iterator[bytes], context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid token")


def _understood(read: Callable[[bytes], Any], data: bytes) -> Any:
    """Return the message. Raises InvalidRequest."""
    try:
        return read(data)
    except (DecodeError, TooMany) as error:
        raise InvalidRequest(f"The message cannot be read: {error}.") from None


def _refuse(context: grpc.ServicerContext, call: Call, error: SupervisorError) -> NoReturn:
    if call.left:
        context.abort(grpc.StatusCode.CANCELLED, "the client has left")
    context.abort(grpc.StatusCode[status_of(error)], text_of(error))


def wait_for_end(env: Mapping[str, str], stop: threading.Event, parent: Callable[[], int] = os.getppid) -> None:
    """Wait until `stop` is set, or until the process that started this one is gone."""
    first = parent()
    seconds = watch_seconds(env, first)
    while not stop.wait(seconds):
        if parent() != first:
            return


def stop_at_signal(stop: threading.Event) -> None:
    """Set `stop` when the process is told to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
