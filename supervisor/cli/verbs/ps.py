"""`ps`: what is loaded."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from supervisor.cli.client import Json
from supervisor.cli.configured import configuration_of
from supervisor.cli.daemon import Daemon, connect
from supervisor.cli.exits import OK
from supervisor.cli.nodes import HERE, missing, name_of, nodes_of
from supervisor.cli.registry import Verb
from supervisor.cli.render import dim, note, print_json, print_table
from supervisor.cli.rows import MODEL_HEADERS, REQUEST_HEADERS, model_row, request_row

VERB = Verb(
    summary="show what is loaded",
    order=90,
    description="Show the models that have an engine; in a cluster those of all nodes.",
    examples=(
        ("ps", "what is loaded, and until when"),
        ("ps --requests", "the requests in flight"),
        ("ps --here", "in a cluster: what is loaded on this node alone"),
    ),
    aliases=("status",),
)

_FAILURE_SHOWN_SECONDS = 600.0
_OF_NODES = frozenset({"models", "devices"})  # what `ps` and `devices` show by themselves


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="failures of more than ten minutes ago, too")
    parser.add_argument("--here", action="store_true", help=HERE)
    parser.add_argument("--requests", action="store_true", help="the requests in flight instead, of this node")


def run(args: argparse.Namespace) -> int:
    """Print the models that are not unloaded."""
    daemon = connect(args)
    if args.requests:
        return _requests(daemon, as_json=args.json)
    nodes = [] if args.here else nodes_of(daemon.client)
    models = _shown(daemon.models, args)
    if nodes:
        _show_all(daemon, nodes, models, args)
    elif args.json:
        print_json({**daemon.status, "models": models})
    else:
        _table(MODEL_HEADERS, [model_row(model, time.time()) for model in models])
    if not args.json:
        print(dim(f"configuration: {configuration_of(daemon.status)}"))
    if daemon.stopping and not args.json:
        print("the daemon is stopping: running requests may end, new ones are refused")
    return OK


def _show_all(daemon: Daemon, nodes: Sequence[Json], own: Sequence[Json], args: argparse.Namespace) -> None:
    """Print the models of all nodes. own: those of the first one, as the daemon itself has them."""
    first, *others = nodes
    found = [(first, model) for model in own]
    found += [(node, model) for node in others for model in _shown(node["models"], args)]
    if args.json:
        told = [{name: value for name, value in node.items() if name not in _OF_NODES} for node in nodes]
        models = [{"node": node["name"], **model} for node, model in found]
        print_json({**daemon.status, "node": first["name"], "nodes": told, "models": models})
        return
    _table(("NODE", *MODEL_HEADERS), [(name_of(node), *model_row(model, time.time())) for node, model in found])
    for sentence in missing(nodes):
        note(sentence)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        print_table(headers, rows)
    else:
        print("no model is loaded")


def _shown(models: Sequence[Json], args: argparse.Namespace) -> list[Json]:
    return [one for one in models if one["state"] != "unloaded" and (args.all or not _is_old(one))]


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
