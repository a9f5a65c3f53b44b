"""`models`: every model the daemon knows, loaded or not, and what is on disk."""

from __future__ import annotations

import argparse

from supervisor.cli.client import Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, cell, print_json, print_table, size, state_word

VERB = Verb(
    summary="list every known model",
    order=110,
    description="Show what can be asked for.",
    examples=(
        ("models", "names, states, and what is on disk"),
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
    """Add nothing: the common options are all."""


def run(args: argparse.Namespace) -> int:
    """Print all models, and what is on disk."""
    daemon = connect(args)
    disk = daemon.client.get("/api/v1/disk")["models"]
    if args.json:
        print_json({"models": daemon.models, "disk": disk})
        return OK
    print_table(_HEADERS, [_row(model) for model in daemon.models])
    if disk:
        print()
        print_table(_DISK_HEADERS, [_disk_row(one) for one in disk])
    return OK


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
