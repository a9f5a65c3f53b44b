"""`logs [MODEL]`: the output of a model's engine, or the daemon's own log."""

from __future__ import annotations

import argparse
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from supervisor.cli.daemon import Daemon, connect, find
from supervisor.cli.exits import OK
from supervisor.cli.options import count, require
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json, print_json_line, write
from supervisor.core.text.loglevel import LEVELS
from supervisor.errors import DaemonUnreachable
from supervisor.system.paths import places

VERB = Verb(
    summary="show an engine's output, or the daemon's log",
    order=190,
    description="Show the last lines of a model's engine or of the daemon; from the files when none runs.",
    examples=(
        ("logs -f", "the daemon's log, as it grows"),
        ("logs demo -n 5", "what the engine says"),
        ("logs --level debug", "have the daemon's log tell more from now on"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="its id or alias (default: the daemon's own log)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new lines until Ctrl-C")
    parser.add_argument("-n", "--lines", type=count, default=100, metavar="N", help="how many lines (default: 100)")
    parser.add_argument("--level", choices=LEVELS, help="have the running daemon's own log tell this much from now on")


def run(args: argparse.Namespace) -> int:
    """Print the lines; with --json each as `{"line": …}`."""
    if args.level is not None:
        return _set_level(args)
    daemon = connect(args) if args.follow else find(args)
    for line in _from_file(args) if daemon is None else _from_daemon(daemon, args):
        if args.json:
            print_json_line({"line": line})
        else:
            write(f"{line}\n")
    return OK


def _set_level(args: argparse.Namespace) -> int:
    require(args.model is None, "--level is about the daemon's own log; leave the model out.")
    answer = connect(args).client.post("/api/v1/logs/level", {"level": args.level})
    if args.json:
        print_json(answer)
    else:
        print(f"the daemon's log is at level {answer['level']} until it ends or its configuration says another")
    return OK


def _from_daemon(daemon: Daemon, args: argparse.Namespace) -> Iterator[str]:
    query: dict[str, object] = {"lines": args.lines, "follow": int(args.follow)}
    if args.model:
        query["model"] = args.model
    with closing(daemon.client.lines("/api/v1/logs", query)) as lines:
        yield from lines


def _from_file(args: argparse.Namespace) -> Iterable[str]:
    """Return the last lines of a daemon that ended."""
    where = places(os.environ)
    path = where.engine_log(args.model) if args.model else where.daemon_log
    return _last_lines(path, args.lines)


def _last_lines(path: Path, wanted: int) -> Iterable[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return deque((line.rstrip("\n") for line in file), maxlen=wanted)
    except FileNotFoundError:
        raise DaemonUnreachable(f"No daemon is running and there is no log at {path}.") from None
