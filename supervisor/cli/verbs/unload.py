"""`unload MODEL`, `unload --all`."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import Daemon, connect
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json
from supervisor.errors import UsageError

VERB = Verb(
    summary="stop a model's engine",
    order=50,
    description="Stop a model's engine, also one that is still loading.",
    examples=(
        ("unload qwen3-8b", "once its running requests are done"),
        ("unload --all --now", "every model, without waiting for requests"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="its id or alias")
    parser.add_argument("--all", action="store_true", help="all loaded models")
    parser.add_argument("--now", action="store_true", help="without waiting for running requests")


def run(args: argparse.Namespace) -> int:
    """Unload and print which models."""
    if bool(args.model) == args.all:
        raise UsageError("Say which model to unload, or --all.", param="model")
    daemon = connect(args)
    names = _loaded(daemon) if args.all else [args.model]
    bodies = [{"model": name, **({"now": True} if args.now else {})} for name in names]
    statuses = [daemon.client.post("/api/v1/models/unload", body, timeout=None) for body in bodies]
    if args.json:
        print_json({"models": statuses})
    elif statuses:
        for status in statuses:
            print(f"{status['id']} is unloaded")
    else:
        print("no model is loaded")
    return OK


def _loaded(daemon: Daemon) -> list[str]:
    return [model["id"] for model in daemon.models if model["state"] != "unloaded"]
