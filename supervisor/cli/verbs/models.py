"""`models`: every model the daemon knows, loaded or not, and what is on disk."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from supervisor.cli.client import Client, Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.progress import progress
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, cell, print_json, print_table, size, speed_cell, state_word
from supervisor.errors import RemoteError

VERB = Verb(
    summary="list every known model",
    order=110,
    description="Show what can be asked for.",
    examples=(
        ("models", "names, states, and what is on disk"),
        ("models --speed", "and how fast each would be here"),
        ("models --json", "the same for a program"),
    ),
    aliases=(
        "list",
        "ls",
    ),
)

_HEADERS = ("MODEL", "ALIASES", "STATE", "SOURCE", "SIZE", "PATH")
_DISK_HEADERS = ("ON DISK", "STORE", "SIZE", "USED", "REVISION", "STATE")


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "plan each model: its tokens per second alone, behind nothing and behind the longest text that is foretold"
    parser.add_argument("--speed", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    """Print all models, and what is on disk."""
    daemon = connect(args)
    disk = daemon.client.get("/api/v1/disk")["models"]
    speeds = _speeds(daemon.client, _names(daemon.models, disk)) if args.speed else {}
    if args.json:
        print_json({"models": daemon.models, "disk": disk} | ({"speeds": speeds} if args.speed else {}))
        return OK
    more = ("SPEED t/s",) if args.speed else ()
    _table((*_HEADERS, *more), [(model["id"], _row(model)) for model in daemon.models], speeds)
    if disk:
        print()
        _table((*_DISK_HEADERS, *more), [(one["name"], _disk_row(one)) for one in disk], speeds)
    return OK


def _names(models: Sequence[Json], disk: Sequence[Json]) -> list[str]:
    """Return the names of all that can be planned: what is known, and what is whole on disk."""
    whole = [one["name"] for one in disk if not one["missing"]]
    return list(dict.fromkeys([*(model["id"] for model in models), *whole]))


def _table(headers: tuple[str, ...], rows: list[tuple[str, tuple[str, ...]]], speeds: Json) -> None:
    """Print rows, each of a name, with their speeds where there are any."""
    print_table(headers, [(*row, speed_cell(speeds.get(name))) if speeds else row for name, row in rows])


def _speeds(client: Client, names: list[str]) -> Json:
    """Return what a plan says of each model: its `speed`, or `error` with the code of what is in its way."""
    found: Json = {}
    with progress() as report:
        for number, name in enumerate(names):
            report(f"planning {name}", number / len(names))
            try:
                plan = client.post("/api/v1/plan", {"target": name}, timeout=None)
            except RemoteError as error:
                found[name] = {"speed": None, "error": error.code}
            else:
                fits = plan["fits"]
                found[name] = {"speed": plan.get("speed"), "error": None if fits else "does_not_fit"}
    return found


def _disk_row(one: Json) -> tuple[str, ...]:
    missing = f"{len(one['missing'])} parts missing" if one["missing"] else None
    state = "loaded" if one["loaded"] else cell(one["problem"] or missing)
    revision = f"{', '.join(one['revisions']) or '-'} {one['commit'][:8]}" if one["commit"] else "-"
    return one["name"], one["store"], size(one["size_bytes"]), ago(one["used_at"]), revision, state


def _row(model: Json) -> tuple[str, ...]:
    aliases = ", ".join(model.get("aliases") or ()) or "-"
    return (
        model["id"],
        aliases,
        state_word(model["state"]),
        cell(model.get("source")),
        size(model.get("size_bytes")),
        cell(model.get("hub") or model.get("path")),
    )
