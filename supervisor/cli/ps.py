"""`ps`: what is loaded."""

from __future__ import annotations

import argparse

from supervisor.cli.client import Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_common
from supervisor.cli.render import ago, cell, print_json, print_table, size

_HEADERS = ("MODEL", "STATE", "PID", "CONTEXT", "MEMORY", "BUSY", "WAITING", "UP")


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("ps", help="what is loaded", description="Show the models that have an engine.")
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the models that are not unloaded."""
    daemon = connect(args)
    models = [model for model in daemon.models if model["state"] != "unloaded"]
    if args.json:
        print_json({**daemon.status, "models": models})
    elif models:
        print_table(_HEADERS, [_row(model) for model in models])
    else:
        print("no model is loaded")
    return OK


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
    )


def _state(model: Json) -> str:
    progress = model.get("progress")
    if model["state"] == "loading" and progress is not None:
        return f"loading {progress:.0%}"
    error = model.get("error")
    return f"{model['state']} ({error['code']})" if error else str(model["state"])
