"""`history`: requests that have ended, and what happened to engines."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from contextlib import closing

from supervisor.cli.client import Client, Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import length_of_time, positive, require
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, cell, print_json, print_table, write

VERB = Verb(
    summary="show requests that have ended",
    order=97,
    description="Show the last requests that have ended, or with --loads what happened to engines; newest first.",
    examples=(
        ("history", "the last requests: tokens, times, errors"),
        ("history --model demo --since 1h", "those of one model in the last hour"),
        ("history --loads", "starts, ends and failures of engines"),
        ("history --export csv --since 7d > week.csv", "all requests of a week for a spreadsheet"),
    ),
)

_PATH = "/api/v1/history"
_MOST = 1000  # in one answer of the daemon
_HEADERS = ("AGE", "MODEL", "PATH", "KEY", "STATUS", "CODE", "SECONDS", "QUEUED", "FIRST", "PROMPT", "WRITTEN", "T/S")
_LOAD_HEADERS = ("AGE", "MODEL", "ENGINE", "EVENT", "SECONDS", "CODE", "REASON")
_OF_LOADS = "--loads has no filter but --model."


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="ID", help="those of one model, by its id")
    parser.add_argument("--key", metavar="NAME", help="those of one API key, by its name")
    parser.add_argument("--code", metavar="CODE", help="those that ended with this error")
    parser.add_argument("--since", type=length_of_time, metavar="TIME", help="those of the last 12h, 7d, …")
    parser.add_argument("-n", "--lines", type=positive, default=20, metavar="N", help="how many (default: 20)")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--loads", action="store_true", help="what happened to engines instead")
    kinds.add_argument("--export", choices=("csv", "jsonl"), help="write all requests that are left, as a file")


def run(args: argparse.Namespace) -> int:
    """Print a table, or a file."""
    client = connect(args).client
    if args.export:
        _export(args, client)
        return OK
    name = "loads" if args.loads else "requests"
    require(not args.loads or args.key is args.code is args.since is None, _OF_LOADS)
    found = list(_newest(client, _PATH + ("/loads" if args.loads else ""), name, _filters(args), args.lines))
    if args.json:
        print_json({name: found})
    elif not found:
        print("no request has ended so" if name == "requests" else "nothing has happened to an engine")
    elif args.loads:
        print_table(_LOAD_HEADERS, [_load(one) for one in found])
    else:
        print_table(_HEADERS, [_request(one) for one in found])
    return OK


def _filters(args: argparse.Namespace) -> dict[str, object]:
    since = None if args.since is None else max(0.0, time.time() - args.since)
    given = {"model": args.model, "key": args.key, "code": args.code, "since": since}
    return {name: value for name, value in given.items() if value is not None}


def _newest(client: Client, path: str, name: str, filters: dict[str, object], count: int) -> Iterator[Json]:
    """Yield so many records, from as many answers as it takes."""
    before: dict[str, object] = {}
    while count > 0:
        page = client.get(path, {**filters, **before, "limit": min(count, _MOST)})
        yield from page[name]
        count -= len(page[name])
        if page["next"] is None:
            return
        before = {"before": page["next"]}


def _export(args: argparse.Namespace, client: Client) -> None:
    query = {**_filters(args), "format": args.export}
    with closing(client.lines(f"{_PATH}/export", query)) as lines:
        for line in lines:
            write(f"{line}\n")


def _request(one: Json) -> tuple[str, ...]:
    return (
        *(ago(one["at"]), *map(cell, (one["model"], one["path"], one["key"], one["status"], one["code"]))),
        *_seconds(one[name] for name in ("seconds", "queued", "first")),
        *(cell(one["prompt_tokens"]), cell(one["completion_tokens"])),
        "-" if one["tokens_per_second"] is None else f"{one['tokens_per_second']:.1f}",
    )


def _load(one: Json) -> tuple[str, ...]:
    event = one["event"].removeprefix("engine_")
    seconds = next(_seconds([one["seconds"]]))
    return (ago(one["at"]), one["model"], str(one["engine"]), event, seconds, cell(one["code"]), cell(one["reason"]))


def _seconds(lengths: Iterable[float | None]) -> Iterator[str]:
    return ("-" if length is None else f"{length:.3f}" for length in lengths)
