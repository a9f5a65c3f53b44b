"""`verify [TARGET]`: compares what is on disk with what the hub says."""

from __future__ import annotations

import argparse

from supervisor.cli.background import ensure
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.options import add_background
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json

VERB = Verb(
    summary="check sizes and hashes of models on disk",
    order=140,
    description="Check sizes, hashes and headers of models in the hub's cache; every byte is read.",
    examples=(
        ("verify", "everything"),
        ("verify owner/repo:Q4_K_M", "one model"),
    ),
    exits=((1, "something is wrong"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar="TARGET", help="as `models` shows it (default: all)")
    add_background(parser)


def run(args: argparse.Namespace) -> int:
    """Check the files and print what is wrong."""
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
