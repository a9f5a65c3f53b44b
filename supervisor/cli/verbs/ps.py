"""`ps`: what is loaded."""

from __future__ import annotations

import argparse
import time

from supervisor.cli.client import Json
from supervisor.cli.configured import configuration_of
from supervisor.cli.daemon import Daemon, connect
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import dim, print_json, print_table
from supervisor.cli.rows import MODEL_HEADERS, REQUEST_HEADERS, model_row, request_row

VERB = Verb(
    summary="show what is loaded",
    order=90,
    description="Show the models that have an engine.",
    examples=(
        ("ps", "what is loaded, and until when"),
        ("ps --requests", "the requests in flight"),
    ),
    aliases=("status",),
)

_FAILURE_SHOWN_SECONDS = 600.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="failures of more than ten minutes ago, too")
    parser.add_argument("--requests", action="store_true", help="the requests in flight instead")


def run(args: argparse.Namespace) -> int:
    """Print the models that are not unloaded."""
    daemon = connect(args)
    if args.requests:
        return _requests(daemon, as_json=args.json)
    models = [model for model in daemon.models if model["state"] != "unloaded" and (args.all or not _is_old(model))]
    if args.json:
        print_json({**daemon.status, "models": models})
    elif models:
        print_table(MODEL_HEADERS, [model_row(model, time.time()) for model in models])
    else:
        print("no model is loaded")
    if not args.json:
        print(dim(f"configuration: {configuration_of(daemon.status)}"))
    if daemon.stopping and not args.json:
        print("the daemon is stopping: running requests may end, new ones are refused")
    return OK


def _requests(daemon: Daemon, *, as_json: bool) -> int:
    found = daemon.client.get("/api/v1/requests")
    if as_json:
        print_json(found)
    elif found["requests"]:
        print_table(REQUEST_HEADERS, [request_row(request, time.time()) for request in found["requests"]])
    else:
        print("no request is in flight")
    return OK


def _is_old(model: Json) -> bool:
    """Tell whether it failed, and nobody has asked for it for a while."""
    failed_at = model.get("failed_at")
    return model["state"] == "failed" and failed_at is not None and time.time() - failed_at > _FAILURE_SHOWN_SECONDS
