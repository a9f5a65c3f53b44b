"""`clean`: removes what the program put on the machine.

What that is, `cli/leftovers` finds out: only what the program wrote into folders that it marked as its own. The rest is
listed and stays. The environment this very code runs from comes last.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import supervisor
from supervisor.cli.daemon import api_key, at_endpoint
from supervisor.cli.ending import stop_daemon
from supervisor.cli.exits import OK
from supervisor.cli.leftovers import Left, Leftover, leftovers, remove
from supervisor.cli.options import require
from supervisor.cli.registry import Verb
from supervisor.cli.render import note, print_json, print_table, size
from supervisor.system.paths import places

VERB = Verb(
    summary="remove what the program put on this machine",
    order=260,
    description="""Stop the daemon and remove state, cache, engines and, in a checkout, the environment. Shows what
goes and what stays, and asks first. Configuration files and models stay.""",
    examples=(
        ("clean --dry-run", "what would go, and what would stay"),
        ("clean --keep-engines", "all but the engines, which take long to build"),
    ),
)

_LEFT_SHOWN = 40


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would go")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--keep-engines", action="store_true", help="keep installed and built engines")
    parser.add_argument("--keep-environment", action="store_true", help="keep the checkout's .venv")


def run(args: argparse.Namespace) -> int:
    """Show, ask, stop, remove."""
    where = places(os.environ)
    checkout = None if args.keep_environment else _checkout()
    found = leftovers(where, checkout, keep_engines=args.keep_engines)
    if not args.json:
        _show(found)
    removed: list[Leftover] = []
    if any(item.entries or item.emptied for item in found) and not args.dry_run and _agreed(args):
        daemon = at_endpoint(where, api_key(args))
        if daemon is not None:
            stop_daemon(daemon)
        agreed = {item.folder: item.marker for item in found}
        removed = leftovers(where, checkout, keep_engines=args.keep_engines)
        removed = [item for item in removed if agreed.get(item.folder, item.marker) == item.marker]
        for leftover in removed:
            remove(leftover)
    if args.json:
        shown = found if args.dry_run else removed
        items = [item.as_json() for item in shown if item.entries]
        left = [one.as_json() for item in shown for one in item.left]
        print_json({"dry_run": args.dry_run, "items": items, "left": left, "bytes": sum(item.size for item in shown)})
    elif removed:
        print(f"removed {size(sum(item.size for item in removed))}")
    return OK


def _checkout() -> Path | None:
    """Return the repository this package runs from; None for an installed one."""
    root = Path(supervisor.__file__).parents[1]
    return root if (root / "bin" / "environment.py").is_file() else None


def _show(found: list[Leftover]) -> None:
    rows = [(item.what, size(item.size), str(item.folder)) for item in found if item.entries]
    if rows:
        print_table(("WHAT", "SIZE", "IN"), [*rows, ("total", size(sum(item.size for item in found)), "")])
    else:
        print("nothing to remove")
    _show_left([one for item in found for one in item.left])


def _show_left(left: list[Left]) -> None:
    if left:
        print("\nstays:")
    for one in left[:_LEFT_SHOWN]:
        print(f"  {one.path}: {one.reason}")
    if len(left) > _LEFT_SHOWN:
        print(f"  and {len(left) - _LEFT_SHOWN} more; --json lists all")


def _agreed(args: argparse.Namespace) -> bool:
    if args.yes:
        return True
    require(sys.stdin.isatty(), "There is no terminal to ask on; look with --dry-run, then say --yes.")
    note("Stops the daemon and removes all of this.")
    try:
        return input("Go on? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False
