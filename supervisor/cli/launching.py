"""The options that say how a model is launched, by llama-server's own names; used by `load`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from functools import partial
from typing import Any, get_args

from supervisor.cli.client import Json
from supervisor.cli.options import ranged, tokens
from supervisor.core.options import LaunchOptions, Mark, Option, kinds, options_of
from supervisor.core.repository import Preference
from supervisor.errors import UsageError

_FEW = 4  # words that a usage line has room for
_PREFER = """of a repository's variants, take the one with the best quality, the most tokens per second (foretold), or
the longest context (default: the best quality that fits whole, with the wanted context)"""
_ROWS = tuple(row for row in options_of(LaunchOptions) if Mark.TYPED in row.marks)


def add_launch_options(parser: argparse.ArgumentParser, rows: Iterable[Option] = _ROWS) -> None:
    """Add flags for these options, and `--set` and `--extra-arg` for all others."""
    group = parser.add_argument_group("how it is launched (llama-server's own options)")
    for row in rows:
        add_flag(group, row)
    add = group.add_argument
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="any other option: --set cache_ram=0")
    add("--extra-arg", action="append", metavar="ARG", help="one more argument for the engine: --extra-arg=--no-warmup")


def add_preference(parser: argparse.ArgumentParser) -> None:
    """Add `--prefer`."""
    parser.add_argument("--prefer", choices=get_args(Preference), help=_PREFER)


def preferred(args: argparse.Namespace) -> Json:
    """Return the part of a request that `--prefer` makes."""
    return {"prefer": args.prefer} if args.prefer else {}


def add_flag(group: argparse._ActionsContainer, row: Option, **instead: Any) -> None:
    """Add the flag of an option: llama-server's short spellings and its own name; `instead`: more for argparse."""
    given: Json = {**_reading(row), "default": None, "dest": row.name, "help": help_of(row), **instead}
    group.add_argument(*row.short, flag_of(row), **given)


def flag_of(row: Option) -> str:
    """Return `--ctx-size` for `ctx_size`."""
    return f"--{row.name.replace('_', '-')}"


def help_of(row: Option) -> str:
    """Return its line of help, and how its value is written if that is not plain."""
    match row.kind:
        case kinds.Choice(words) if len(words) > _FEW:
            return f"{row.help}: {', '.join(words)}"
        case kinds.Whole(_, _, "tokens"):
            return f"{row.help} (tokens, such as 8k)"
        case kinds.Many() if row.optional:
            return f"{row.help} (none: an empty list)"
        case _:
            return row.help


def _reading(row: Option) -> Json:
    """Return argparse's settings to read its value."""
    match row.kind:
        case kinds.Truth():
            return {"action": argparse.BooleanOptionalAction if row.optional else "store_true"}
        case kinds.Choice(words):
            return {"choices": words} if len(words) <= _FEW else {"choices": words, "metavar": "TYPE"}
        case kinds.Whole(least, most, unit):
            return {"type": partial(tokens if unit == "tokens" else ranged, low=least, high=most), "metavar": "N"}
        case kinds.Decimal():
            return {"type": float, "metavar": "N"}
        case kinds.Many(kinds.Decimal()):
            return {"type": _shares, "metavar": "A,B"}
        case kinds.Many() | kinds.Words():
            return {"type": _names, "metavar": "A,B"}
        case kinds.Json() | kinds.Variables():
            return {"type": _object, "metavar": "JSON"}
        case _:
            return {"metavar": "TEXT"}


def launch_options(args: argparse.Namespace, rows: Iterable[Option] = _ROWS) -> Json:
    """Return what was given, as `options` of a load. Raises UsageError for a `--set` that is not NAME=VALUE."""
    given: Json = {row.name: getattr(args, row.name) for row in rows if getattr(args, row.name) is not None}
    given.update(map(_assignment, args.set))
    return given if args.extra_arg is None else {**given, "extra_args": args.extra_arg}


def _assignment(text: str) -> tuple[str, object]:
    """Split NAME=VALUE; the value is read as JSON if it is that, else taken as text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--set {text}: write NAME=VALUE, e.g. --set cache_ram=0", param="set")
    try:
        return name.replace("-", "_"), json.loads(value)
    except (ValueError, RecursionError):
        return name.replace("-", "_"), value


def _names(text: str) -> list[str]:
    return [] if text in {"", "none"} else text.split(",")


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of shares, such as 3,1") from None


def _object(text: str) -> Json:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return found
