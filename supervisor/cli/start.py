"""`start`: a daemon in the background, and where it answers."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import ensure
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_background, add_common
from supervisor.cli.progress import progress
from supervisor.cli.render import print_json

_DESCRIPTION = """Start the daemon in the background and print where it answers. One that runs already stays as it is.
`load`, `chat` and `demo` do this by themselves."""


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser("start", help="run the daemon in the background", description=_DESCRIPTION)
    add_background(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Start it, unless one runs."""
    with progress() as report:
        daemon = ensure(args, report)
    pid = daemon.status.get("pid")
    if args.json:
        print_json({"base_url": daemon.base_url, "pid": pid})
    else:
        print(f"the daemon runs (pid {pid})")
        print(f"  base URL  {daemon.base_url}")
    return OK
