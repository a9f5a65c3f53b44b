"""`forget MODEL`: a load by path or reference added it, and nobody wants to see it any more."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_common
from supervisor.cli.render import print_json

_DESCRIPTION = """Take a model that a load added out of the list of models. Its files stay: `rm` removes those of the
hub's cache. A loaded model is refused, and so is one of the configuration."""


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("forget", help="drop a model that a load added", description=_DESCRIPTION)
    parser.add_argument("model", metavar="MODEL", help="its id or alias")
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Forget it and say so."""
    was = connect(args).client.post("/api/v1/models/forget", {"model": args.model})
    if args.json:
        print_json(was)
    else:
        print(f"{was['id']} is forgotten")
    return OK
