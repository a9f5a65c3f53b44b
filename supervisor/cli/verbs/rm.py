"""`rm TARGET`: free what a model takes in the hub's cache."""

from __future__ import annotations

import argparse

from supervisor.cli.background import ensure
from supervisor.cli.exits import OK
from supervisor.cli.options import add_background
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json, size

VERB = Verb(
    summary="remove a model from the disk",
    order=130,
    description="""Remove a model's files from the hub's cache; what another revision or model shares stays. A loaded
model is refused, files of other programs are never touched.""",
    examples=(
        ("rm owner/repo:Q4_K_M", "one quantisation"),
        ("rm owner/repo", "all of a repository"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="as `models` shows it; owner/repo: all of the repository")
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Remove the files, and print what that freed."""
    with progress() as report:
        daemon = ensure(args, report)
    found = daemon.client.delete("/api/v1/models", {"model": args.target}, timeout=None)
    if args.json:
        print_json(found)
    else:
        print(f"{found['model']} is removed, {size(found['freed_bytes'])} are free again")
    return OK
