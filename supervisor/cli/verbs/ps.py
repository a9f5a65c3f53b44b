"""`ps`: what is loaded."""

from __future__ import annotations

import argparse
import time

from supervisor.cli.client import Json
from supervisor.cli.configured import configuration_of
from supervisor.cli.daemon import Daemon, connect
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, cell, dim, duration, print_json, print_table, size, state_word

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

_HEADERS = ("MODEL", "STATE", "PID", "CONTEXT", "MEMORY", "BUSY", "WAITING", "UP", "UNTIL")
_FAILURE_SHOWN_SECONDS = 600.0
_REQUEST_HEADERS = ("REQUEST", "MODEL", "PATH", "STATE", "ENGINE", "FOR")


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
        print_table(_HEADERS, [_row(model) for model in models])
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
        print_table(_REQUEST_HEADERS, [_request_row(request) for request in found["requests"]])
    else:
        print("no request is in flight")
    return OK


def _request_row(request: Json) -> tuple[str, ...]:
    facts = (request["id"], request["model"], request["path"], request["state"])
    return (*(str(fact) for fact in facts), cell(request.get("engine")), ago(request.get("since")))


def _row(model: Json) -> tuple[str, ...]:
    return (
        model["id"],
        _state(model),
        cell(model.get("pid")),
        cell(model.get("n_ctx")),
        size(model.get("rss_bytes")),
        cell(model.get("leases")),
        cell(model.get("waiting")),
        ago(model.get("loaded_at")),
        _until(model),
    )


def _is_old(model: Json) -> bool:
    """Tell whether it failed, and nobody has asked for it for a while."""
    failed_at = model.get("failed_at")
    return model["state"] == "failed" and failed_at is not None and time.time() - failed_at > _FAILURE_SHOWN_SECONDS


def _until(model: Json) -> str:
    """Format how long it stays: `pinned`, or what is left of its time to live; `-`: until its room is needed."""
    expires_at = model.get("expires_at")
    if model.get("pinned"):
        return "pinned"
    return "-" if expires_at is None else duration(max(0.0, expires_at - time.time()))


def _state(model: Json) -> str:
    progress = model.get("progress")
    if model["state"] == "loading" and progress is not None:
        return f"loading {progress:.0%}"
    error = model.get("error")
    state = state_word(model["state"])
    return f"{state} ({error['code']})" if error else state
