"""`start`: a daemon in the background, and where it answers."""

from __future__ import annotations

import argparse

from supervisor.cli.background import ensure
from supervisor.cli.exits import OK
from supervisor.cli.options import add_background
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json

VERB = Verb(
    summary="run the daemon in the background",
    order=30,
    description="""Start the daemon in the background and print where it answers. One that runs already stays as it is.
`load`, `chat` and `demo` do this by themselves.""",
    examples=(
        ("start", "on 127.0.0.1:8686, with the configuration that is found"),
        ("start --config models.yaml", "with another configuration"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Start the daemon, unless one runs."""
    with progress() as report:
        daemon = ensure(args, report)
    pid = daemon.status.get("pid")
    if args.json:
        print_json({"base_url": daemon.base_url, "pid": pid})
    else:
        print(f"the daemon runs (pid {pid})")
        print(f"  base URL  {daemon.base_url}")
    return OK
