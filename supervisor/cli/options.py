"""Options that several verbs share, and the command's own name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TypeAlias

from supervisor.core.text import units
from supervisor.errors import UsageError

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # what `add_subparsers()` returns
Run: TypeAlias = Callable[[argparse.Namespace], int]
"""Does what a verb is for and returns the exit code."""


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options every verb understands."""
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="print JSON for programs")
    add_daemon(group)


def add_daemon(group: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options that choose the daemon."""
    group.add_argument("--url", metavar="URL", help="which daemon (default: $SUPERVISOR_URL, else the local one)")
    group.add_argument("--api-key", metavar="KEY", help="its key (default: $SUPERVISOR_API_KEY)")


def add_background(parser: argparse.ArgumentParser) -> None:
    """Add the options for the daemon that a verb starts in the background when none runs."""
    group = parser.add_argument_group("if a daemon has to be started")
    group.add_argument("--config", metavar="FILE", help="its configuration file")
    group.add_argument("--port", type=port, metavar="N", help="its port (0: any free one)")
    group.add_argument("--engine", metavar="PATH", help="the llama-server to use")


def inner_verb(verbs: Subparsers, name: str, short: str, run: Run, description: str = "") -> argparse.ArgumentParser:
    """Add a verb of a verb, with `--json`; its description is its line in the list where there is none."""
    parser = verbs.add_parser(name, help=short, description=description or f"{short[:1].upper()}{short[1:]}.")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.set_defaults(run=run)
    return parser


def port(text: str) -> int:
    """Parse a TCP port; 0 lets the system choose. Raises argparse.ArgumentTypeError."""
    return ranged(text, 0, 65535)


def positive(text: str) -> int:
    """Parse an integer of at least 1. Raises argparse.ArgumentTypeError."""
    return ranged(text, 1, 2**31 - 1)


def count(text: str) -> int:
    """Parse an integer of at least 0. Raises argparse.ArgumentTypeError."""
    return ranged(text, 0, 2**31 - 1)


def tokens(text: str, low: int = 0, high: int = 2**31 - 1) -> int:
    """Parse a number of tokens, `8k` for 8192. Raises argparse.ArgumentTypeError."""
    try:
        return ranged(str(units.tokens(text)), low, high)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens such as 8192 or 8k") from None


def length_of_time(text: str) -> float:
    """Return the seconds of an option's value, such as `12h`."""
    try:
        return units.seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None


def command_name(env: Mapping[str, str]) -> str:
    """Return the program as this user can type it: `bin/supervisor` says so through SUPERVISOR_COMMAND."""
    return env.get("SUPERVISOR_COMMAND") or "supervisor"


def require(condition: object, message: str) -> None:
    """Raise UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


def ranged(text: str, low: int, high: int) -> int:
    """Parse a whole number from `low` to `high`. Raises argparse.ArgumentTypeError."""
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
    return value
