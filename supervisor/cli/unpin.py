"""`unpin MODEL`."""

from __future__ import annotations

from supervisor.cli.options import Subparsers
from supervisor.cli.pin import add_verb


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    add_verb(subparsers, "unpin", "let a model leave again", "Let a model's engine leave for idleness or others' room.")
