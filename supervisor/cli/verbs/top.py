"""`top`: devices, models and requests, as they change; what to do with them at a key."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace

from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.nodes import HERE
from supervisor.cli.picture import Choice, Snapshot, View, picture
from supervisor.cli.prose import columns, is_terminal
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json
from supervisor.cli.watching import Order, Watch, cancel, look, pin, unload
from supervisor.core.text import units

VERB = Verb(
    summary="show devices, models and requests, live",
    order=95,
    description="""Show devices, models and requests as they change; in a cluster devices and models of all nodes. Keys
unload or pin the chosen model and cancel the chosen request; of models on other nodes they say what to do. Where there
is no terminal, the state now is printed once.""",
    examples=(
        ("top", "until q or Ctrl-C"),
        ("top --every 5", "a look every five seconds"),
    ),
)

_SHORTEST, _LONGEST = 0.1, 3600.0  # seconds
_MOST_LINES = 1 << 20  # where the picture does not have to fit a screen


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", type=_seconds, default=1.0, metavar="SECONDS", help="between looks (default: 1)")
    parser.add_argument("--here", action="store_true", help=HERE)


def run(args: argparse.Namespace) -> int:
    """Show the picture until `q`."""
    daemon = connect(args)
    first = look(daemon.client, daemon.status, here=args.here)
    if args.json:
        nodes = {"nodes": first.nodes} if first.nodes else {}
        print_json({"status": first.status, "devices": first.devices, "requests": first.requests, **nodes})
    elif is_terminal(sys.stdout) and sys.stdin.isatty():
        _show(Watch(daemon.client, first, args.every, here=args.here), args.every)
    else:
        for line in picture(
            first, View(), columns(sys.stdout) if is_terminal(sys.stdout) else _MOST_LINES, _MOST_LINES
        )[:-1]:
            print(line.text)
    return OK


def _show(watch: Watch, every: float) -> None:
    from supervisor.cli.screen import own_screen  # noqa: PLC0415 - termios is not everywhere

    view, wanted = View(), None
    with own_screen(watch.woken) as screen:
        while True:
            snapshot = watch.snapshot
            view = replace(view, choice=snapshot.chosen(view), message=watch.told or view.message)
            watch.told = ""
            screen.draw(picture(snapshot, view, *screen.size()))
            key = screen.key(every)
            if key == "q":
                return
            if wanted is not None and key is not None:
                if key == "y":
                    watch.order(wanted)
                view, wanted = replace(view, question="", message="…" if key == "y" else ""), None
            elif key in {"up", "down"}:
                view = view.moved(snapshot, 1 if key == "down" else -1)
            elif key is not None:
                view, wanted = _pressed(key, snapshot, view, watch)


def _pressed(key: str, snapshot: Snapshot, view: View, watch: Watch) -> tuple[View, Order | None]:
    """Do what a letter means for the chosen line; what ends something is asked about first."""
    match key, view.choice:
        case "u" | "p", Choice("model", name, node) if node:
            verb = "unload" if key == "u" else "unpin" if snapshot.pins(view.choice) else "pin"
            told = f"{name} is on the node {node}. There: `supervisor {verb} {shlex.quote(name)}`."
            return replace(view, message=told), None
        case "u", Choice("model", name):
            return replace(view, question=f"Unload {name}? y/n"), unload(name)
        case "c", Choice("request", number):
            return replace(view, question=f"Cancel request {number}? y/n"), cancel(number)
        case "p", Choice("model", name):
            watch.order(pin(name, pinned=not snapshot.pins(view.choice)))
        case _:
            pass
    return view, None


def _seconds(text: str) -> float:
    """Parse a length of time from 0.1 s to an hour, `5` or `2m`. Raises argparse.ArgumentTypeError."""
    try:
        value = units.seconds(text)
    except ValueError:
        value = 0.0
    if not _SHORTEST <= value <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time from 0.1 s to 1 h, such as 5 or 2m")
    return value
