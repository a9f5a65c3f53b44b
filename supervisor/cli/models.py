"""`models`: every model the daemon knows, loaded or not."""

from __future__ import annotations

import argparse

from supervisor.cli.client import Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_common
from supervisor.cli.render import cell, print_json, print_table, size

_HEADERS = ("MODEL", "ALIASES", "STATE", "SOURCE", "SIZE", "PATH")


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("models", help="every known model", description="Show what can be asked for.")
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print all models."""
    daemon = connect(args)
    if args.json:
        print_json({"models": daemon.models})
    else:
        print_table(_HEADERS, [_row(model) for model in daemon.models])
    return OK


def _row(model: Json) -> tuple[str, ...]:
    aliases = ", ".join(model.get("aliases") or ()) or "-"
    return (
        model["id"],
        aliases,
        model["state"],
        cell(model.get("source")),
        size(model.get("size_bytes")),
        cell(model.get("path")),
    )
