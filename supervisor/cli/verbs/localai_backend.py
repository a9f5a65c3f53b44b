"""`localai-backend`: LocalAI's models answered by the daemon."""

from __future__ import annotations

import argparse
import os
import threading

from supervisor.cli.background import ensure
from supervisor.cli.exits import OK
from supervisor.cli.options import add_background, port
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json
from supervisor.core.requests.access import is_loopback
from supervisor.errors import ExtraMissing, InsecureBind

VERB = Verb(
    summary="answer LocalAI over gRPC",
    order=105,
    description="""Serve LocalAI's backend contract over gRPC, in front of the daemon, until it is told to stop or the
process that started it is gone. Starts a daemon in the background if none runs when the first model is loaded. Needs
the extra `[localai]`.""",
    examples=(("localai-backend --addr 127.0.0.1:50051", "for LocalAI to attach to, with all its models"),),
)

TOKEN = "LOCALAI_GRPC_AUTH_TOKEN"
"""The variable with the token that every call has to bring."""

_EXTRA = frozenset({"grpc", "google"})


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--addr", required=True, type=_address, metavar="HOST:PORT", help="where to listen")
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until the end."""
    host, number = args.addr
    token = os.environ.get(TOKEN, "")
    if not token and not is_loopback(host):
        raise InsecureBind(f"{host} can be reached from elsewhere; set {TOKEN} here and for LocalAI.")
    try:
        from supervisor.cli.localai.backend import Backend  # noqa: PLC0415 - of use with the extra alone
        from supervisor.cli.localai.finding import Finder  # noqa: PLC0415 - likewise
        from supervisor.cli.localai.serving import Server, stop_at_signal, wait_for_end  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise ExtraMissing(
            "`localai-backend` needs grpcio and protobuf: `pip install 'llama-supervisor[localai]'`, or in a checkout"
            " `.venv/bin/python -m pip install -r requirements/localai.txt`."
        ) from None
    stop = threading.Event()
    stop_at_signal(stop)
    backend = Backend(Finder(lambda: ensure(args, lambda *_: None)))
    server = Server(backend, f"[{host}]:{number}" if ":" in host else f"{host}:{number}", token)
    server.start()
    _tell(args, host, server.port)
    try:
        wait_for_end(os.environ, stop)
    finally:
        server.stop()
        backend.close()
    return OK


def _tell(args: argparse.Namespace, host: str, number: int) -> None:
    if args.json:
        print_json({"host": host, "port": number})
    else:
        print(f"LocalAI can attach to {host}:{number}", flush=True)


def _address(text: str) -> tuple[str, int]:
    host, colon, number = text.rpartition(":")
    if not colon or not host:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:50051")
    return host.removeprefix("[").removesuffix("]"), port(number)
