"""`pin MODEL`; `unpin` shares what it does."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_common
from supervisor.cli.render import print_json


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    add_verb(
        subparsers, "pin", "keep a model loaded", "Keep a model's engine from leaving for idleness or others' room."
    )


def run(args: argparse.Namespace) -> int:
    """Do it and say so."""
    status = connect(args).client.post(f"/api/v1/models/{args.verb}", {"model": args.model})
    if args.json:
        print_json(status)
    else:
        print(f"{status['id']} is {'pinned' if status['pinned'] else 'not pinned'}")
    return OK


def add_verb(subparsers: Subparsers, verb: str, summary: str, description: str) -> None:
    """Register a verb that names a model and is called as the REST interface calls it."""
    parser = subparsers.add_parser(verb, help=summary, description=description)
    parser.add_argument("model", metavar="MODEL", help="its id or alias")
    add_common(parser)
    parser.set_defaults(run=run)
