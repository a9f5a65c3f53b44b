"""`verify [TARGET]`: is what is on disk what the hub says it is."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import ensure
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.options import Subparsers, add_background, add_common
from supervisor.cli.progress import progress
from supervisor.cli.render import print_json

_DESCRIPTION = """Check sizes, hashes and headers of models in the hub's cache; every byte is read. The exit code is 1
where something is wrong."""


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("verify", help="check sizes and hashes of models on disk", description=_DESCRIPTION)
    parser.add_argument("target", nargs="?", metavar="TARGET", help="as `models` shows it (default: all)")
    add_background(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check, say what is wrong."""
    with progress() as report:
        daemon = ensure(args, report)
        report("reading what is on disk", None)
        found = daemon.client.post("/api/v1/models/verify", {"model": args.target}, timeout=None)["models"]
    if args.json:
        print_json({"models": found})
    else:
        for one in found:
            print(f"{one['model']}: {'; '.join(one['problems']) or 'ok'}")
    return FAILED if any(one["problems"] for one in found) else OK
