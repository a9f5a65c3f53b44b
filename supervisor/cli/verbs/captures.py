"""`captures`: prompts and answers that were captured."""

from __future__ import annotations

import argparse
import json
from contextlib import closing

from supervisor.cli.client import Client, Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import Run, Subparsers, add_daemon, inner_verb, positive
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, cell, note, print_json, print_table, size, write

VERB = Verb(
    summary="show captured prompts and answers, send them again",
    order=98,
    description="""Show, send again and delete captured requests: those of models and keys that the configuration names
in `capture`. Without it nothing is captured.""",
    examples=(
        ("captures list", "the last ones, without their texts"),
        ("captures show 12", "a prompt, its answer and the headers it came with"),
        ("captures replay 12 --model other", "the same prompt for another model"),
        ("captures export > captures.jsonl", "all of them, an object a line"),
        ("captures forget", "delete all of them"),
    ),
)

_PATH = "/api/v1/captures"
_HEADERS = ("ID", "AGE", "MODEL", "PATH", "KEY", "STATUS", "CODE", "SIZE", "LEFT OUT")
_OFF = "nothing is captured: `capture` of the configuration names no model and no key"
_REPLAY = "Send a captured request again, to its model or another one, and print the answer: the API's own object."


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="captures_verb", required=True)
    listing = inner_verb(verbs, "list", "show the last captured requests", run_list)
    listing.add_argument("--model", metavar="ID", help="those of one model, by its id")
    listing.add_argument("--key", metavar="NAME", help="those of one API key, by its name")
    listing.add_argument("-n", "--lines", type=positive, default=20, metavar="N", help="how many (default: 20)")
    add_daemon(listing)
    _verb(verbs, "show", "show one with its texts", run_show)
    replay = _verb(verbs, "replay", "send one again", run_replay, _REPLAY)
    replay.add_argument("--model", metavar="ID", help="the model that answers (default: the one that did)")
    add_daemon(inner_verb(verbs, "export", "print all with their texts, as lines of JSON", run_export))
    forget = inner_verb(verbs, "forget", "delete one, or all", run_forget)
    forget.add_argument("id", metavar="ID", type=positive, nargs="?", help="the one to delete (default: all)")
    add_daemon(forget)


def run_list(args: argparse.Namespace) -> int:
    """Print a table."""
    wanted = {"model": args.model, "key": args.key, "limit": min(args.lines, 1000)}
    found = _client(args).get(_PATH, {name: value for name, value in wanted.items() if value is not None})
    if args.json:
        print_json(found)
    elif found["captures"]:
        print_table(_HEADERS, [_row(one) for one in found["captures"]])
    else:
        print("no request was captured" if found["on"] else _OFF)
    return OK


def run_show(args: argparse.Namespace) -> int:
    """Print one."""
    found = _client(args).get(f"{_PATH}/{args.id}")
    if args.json:
        print_json(found)
        return OK
    print_table(_HEADERS, [_row(found)])
    for name in ("headers", "request", "answer"):
        write(f"\n{name}:\n{_shown(found[name])}\n")
    return OK


def run_replay(args: argparse.Namespace) -> int:
    """Send one again, and print the answer."""
    found = _client(args).post(f"{_PATH}/{args.id}/replay", {"model": args.model, "stream": False}, timeout=None)
    if args.json:
        print_json(found)
    else:
        write(f"{_shown(found)}\n")
    return OK


def run_export(args: argparse.Namespace) -> int:
    """Print all of them."""
    with closing(_client(args).lines(f"{_PATH}/export", {})) as lines:
        for line in lines:
            write(f"{line}\n")
    return OK


def run_forget(args: argparse.Namespace) -> int:
    """Delete one, or all."""
    found = _client(args).delete(_PATH if args.id is None else f"{_PATH}/{args.id}", {})
    if args.json:
        print_json(found)
    else:
        note(f"{found['deleted']} deleted")
    return OK


def _verb(verbs: Subparsers, name: str, short: str, run: Run, description: str = "") -> argparse.ArgumentParser:
    parser = inner_verb(verbs, name, short, run, description)
    parser.add_argument("id", metavar="ID", type=positive, help="its number in `captures list`")
    add_daemon(parser)
    return parser


def _client(args: argparse.Namespace) -> Client:
    return connect(args).client


def _row(one: Json) -> tuple[str, ...]:
    left_out = [f"{what} of the request" for what in one["request_left_out"]]
    left_out += [f"{what} of the answer" for what in one["answer_left_out"]]
    named = (cell(one[name]) for name in ("model", "path", "key", "status", "code"))
    return (str(one["id"]), ago(one["at"]), *named, size(one["size_bytes"]), ", ".join(left_out) or "-")


def _shown(value: object) -> str:
    """Return JSON for people, and a text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
