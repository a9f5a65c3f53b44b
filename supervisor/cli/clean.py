"""`clean`: removes what the program put on the machine.

A folder that carries the program's name is emptied; of one the user chose (SUPERVISOR_HOME, SUPERVISOR_ENGINES) only
the entries the program writes go. Emptied folders go too. Configuration is the user's and stays. The environment this
very code runs from comes last.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import supervisor
from supervisor.cli.daemon import api_key, at_endpoint
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_common, require
from supervisor.cli.render import note, print_json, print_table, size
from supervisor.cli.stop import stop_daemon
from supervisor.paths import Places, places

_OWN_NAME = "llama-supervisor"
_KEPT = frozenset({"supervisor.yaml"})  # on macOS configuration and state share a folder
_DATABASE = ("state.db", "state.db-wal", "state.db-shm", "state.db.damaged-*")
_STATE = ("endpoint.*", "daemon.lock", "chat_history", "logs/*.log*", "children/*.json", *_DATABASE)
_CACHE = ("capabilities.json", "engine-digests.json", "demo*.gguf", "headers/*.header", "kv/*/*.slot", "kv/*/*.busy")
_ENGINES = ("chosen.json*", ".*lock", "scratch", "downloads/*.tar.*", "downloads/*.zip", "logs/*.log", "tools/cmake*")
_FOLDERS = ("logs", "children", "downloads", "tools", "headers", "kv")  # made by the program; empty ones go


@dataclass(frozen=True)
class Leftover:
    """Something of ours: entries below a folder, and their bytes."""

    what: str
    folder: Path
    entries: tuple[Path, ...]
    size: int

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {"what": self.what, "paths": [str(path) for path in self.entries], "bytes": self.size}


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "clean",
        help="remove what the program put on this machine",
        description="Stop the daemon and remove state, cache, engines and, in a checkout, the environment. "
        "Shows what and asks first. Configuration files and models stay.",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would go")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--keep-engines", action="store_true", help="keep installed and built engines")
    parser.add_argument("--keep-environment", action="store_true", help="keep the checkout's .venv")
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show, ask, stop, remove."""
    where = places(os.environ)
    checkout = None if args.keep_environment else _checkout()
    found = leftovers(where, checkout, keep_engines=args.keep_engines)
    if not args.json:
        _show(found)
    removed: list[Leftover] = []
    if found and not args.dry_run and _agreed(args):
        daemon = at_endpoint(where, api_key(args))
        if daemon is not None:
            stop_daemon(daemon)
        removed = leftovers(where, checkout, keep_engines=args.keep_engines)
        for leftover in removed:
            remove(leftover)
    if args.json:
        shown = found if args.dry_run else removed
        items = [item.as_json() for item in shown]
        print_json({"dry_run": args.dry_run, "items": items, "bytes": sum(item.size for item in shown)})
    elif removed:
        print(f"removed {size(sum(item.size for item in removed))}")
    return OK


def leftovers(where: Places, checkout: Path | None, *, keep_engines: bool) -> list[Leftover]:
    """What of ours is on the machine, inner folders before those that may hold them."""
    found = [
        _leftover("cache", where.cache, _entries(where.cache, _CACHE, but=where.engines)),
        _leftover("sockets", where.runtime, _dead_sockets(where.runtime)),
        _leftover("state", where.state, _entries(where.state, _STATE, but=where.cache)),
    ]
    if not keep_engines:
        found.insert(0, _leftover("engines", where.engines, _engine_entries(where.engines)))
    if checkout is not None:
        own = (checkout / ".venv.setup", checkout / ".venv")
        found.append(_leftover("environment", checkout, (path for path in own if path.is_dir())))
    return [item for item in found if item.entries]


def remove(leftover: Leftover) -> None:
    """Remove its entries, and what folders that leaves empty."""
    for path in leftover.entries:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    parents = {leftover.folder, *(path.parent for path in leftover.entries)}
    parents |= {leftover.folder / name for name in _FOLDERS}
    parents |= {folder for folder in leftover.folder.parents if folder.name == _OWN_NAME}
    for folder in sorted(parents, key=lambda path: len(path.parts), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _leftover(what: str, folder: Path, entries: Iterator[Path]) -> Leftover:
    listed = tuple(sorted(entries))
    return Leftover(what, folder, listed, sum(_bytes(path) for path in listed))


def _entries(folder: Path, patterns: tuple[str, ...], *, but: Path) -> Iterator[Path]:
    """What of ours lies in `folder`, leaving out what is or holds `but`."""
    if not folder.is_dir():
        return
    whole = folder.name == _OWN_NAME
    for pattern in ("*",) if whole else patterns:
        for path in folder.glob(pattern):
            if path != but and path not in but.parents and path.name not in _KEPT:
                yield path


def _engine_entries(folder: Path) -> Iterator[Path]:
    """An engine is a folder with a manifest and a llama-server; beside it lie the choice, a lock, what builds left."""
    if folder.parent.name == _OWN_NAME:
        yield from folder.glob("*")
        return
    yield from (path.parent for path in folder.glob("*/manifest.json") if any(path.parent.glob("bin/llama-server*")))
    for pattern in _ENGINES:
        yield from folder.glob(pattern)


def _dead_sockets(folder: Path) -> Iterator[Path]:
    """Sockets in the runtime folder that nobody listens on: daemons with other state folders share it."""
    for path in folder.glob("*.sock"):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                yield path
            except OSError:
                continue


def _bytes(path: Path) -> int:
    """The bytes of a file or of all files below a folder; links count as themselves."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)


def _checkout() -> Path | None:
    """The repository this package runs from; None for an installed one."""
    root = Path(supervisor.__file__).parents[1]
    return root if (root / "bin" / "environment.py").is_file() else None


def _show(found: list[Leftover]) -> None:
    if not found:
        print("nothing to remove")
        return
    rows = [(item.what, size(item.size), str(item.folder)) for item in found]
    print_table(("WHAT", "SIZE", "IN"), [*rows, ("total", size(sum(item.size for item in found)), "")])


def _agreed(args: argparse.Namespace) -> bool:
    if args.yes:
        return True
    require(sys.stdin.isatty(), "There is no terminal to ask on; look with --dry-run, then say --yes.")
    note("Stops the daemon and removes all of this.")
    try:
        return input("Go on? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False
