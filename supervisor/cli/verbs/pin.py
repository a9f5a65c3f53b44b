"""`pin MODEL`: its engine stays."""

from __future__ import annotations

import argparse

from supervisor.cli.pinning import set_pinned
from supervisor.cli.registry import Verb

VERB = Verb(
    summary="keep a model loaded",
    order=60,
    description="Keep a model's engine from leaving for idleness or others' room.",
    examples=(("pin qwen3-8b", "until the daemon ends, or `unpin`"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="its id or alias")


def run(args: argparse.Namespace) -> int:
    """Call the daemon and print the new state."""
    return set_pinned(args, "pin")
