"""`unpin MODEL`: its engine may leave again."""

from __future__ import annotations

import argparse

from supervisor.cli.pinning import set_pinned
from supervisor.cli.registry import Verb

VERB = Verb(
    summary="let a model leave again",
    order=70,
    description="Let a model's engine leave for idleness or others' room.",
    examples=(("unpin qwen3-8b", "undo `pin`"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="its id or alias")


def run(args: argparse.Namespace) -> int:
    """Call the daemon and print the new state."""
    return set_pinned(args, "unpin")
