"""`events`: what changes, a line for each."""

from __future__ import annotations

import argparse
from contextlib import closing

from supervisor.cli.client import Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import print_json_line, state_word, write

VERB = Verb(
    summary="print what changes, until Ctrl-C",
    order=100,
    description="Print every change of models and requests.",
    examples=(
        ("events", "a line for each change"),
        ("events --json", "a JSON object for each"),
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the common options are all."""


def run(args: argparse.Namespace) -> int:
    """Print until the daemon ends or Ctrl-C."""
    name = ""
    client = connect(args).client
    with closing(client.lines("/api/v1/events", {})) as lines:
        for line in lines:
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data" and args.json:
                print_json_line({"event": name, "data": client.parsed(value)})
            elif key == "data":
                write(f"{_line(name, client.parsed(value))}\n")
    return OK


def _line(name: str, data: Json) -> str:
    match name:
        case "snapshot":
            return f"models: {len(data['models'])}, requests in flight: {len(data['requests'])}"
        case "model":
            error = f" [{data['error']['code']}]" if data.get("error") else ""
            state = state_word(data["state"])
            return f"{data['id']}: {state}, {data['leases']} running, {data['waiting']} waiting{error}"
        case "request":
            return f"request {data['id']}: {data['path']} of {data['model']}, {data['state']}"
        case "request_done":
            return f"request {data['id']}: done"
        case _:
            return f"{name}: {data.get('id', '')}"
