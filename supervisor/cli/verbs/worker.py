"""`worker`: lend this host's devices to another host's daemon; and, there, who lends."""

from __future__ import annotations

import argparse
import os
import socket
from urllib.parse import quote

from supervisor.cli.client import Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import add_daemon, command_name, inner_verb, length_of_time, positive, require
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, duration, note, print_json, print_table, size
from supervisor.core.workers.names import is_name, name_like
from supervisor.core.workers.token import BadToken, decode
from supervisor.errors import UsageError

VERB = Verb(
    summary="lend this host's devices to another host's daemon",
    order=245,
    description="""Lend the devices of this host to the daemon of another one, until it is told to stop. The host has
to join first. On the daemon's host, `invite`, `list` and `remove` say who may.""",
    examples=(
        ("worker invite", "on the daemon's host: a token for one more worker"),
        ("worker join TOKEN", "on the other host, once"),
        ("worker", "on the other host: lend its devices from now on"),
        ("worker list", "on the daemon's host: who is there, and what is free"),
        ("worker remove studio", "let a worker in no more"),
    ),
)

_PATH = "/api/v1/workers"
_HEADERS = ("NAME", "STATE", "DEVICE", "TOTAL", "FREE", "ENGINE", "ROUND TRIP", "JOINED", "")
_CACHE_GIB = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", metavar="PATH", help="the llama-server beside which ggml-rpc-server lies")
    parser.add_argument("--device", action="append", metavar="NAME", default=[],
                        help="a device to lend, once for each (default: all GPUs; without one, the CPU)")  # fmt: skip
    parser.add_argument("--cache-gib", type=positive, metavar="N", default=_CACHE_GIB,
                        help=f"size of the cache of tensors on the disk (default: {_CACHE_GIB})")  # fmt: skip
    parser.add_argument("--no-cache", action="store_true", help="keep no tensors on the disk")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="worker_verb")
    invite = inner_verb(verbs, "invite", "make a token with which one host can join", run_invite)
    invite.add_argument("--host", metavar="HOST", help="how the other host reaches this one (default: its name)")
    invite.add_argument("--expires", type=length_of_time, metavar="TIME", default=3600.0,
                        help="how long it is of use, such as 10m or 2h (default: 1h)")  # fmt: skip
    add_daemon(invite)
    join = inner_verb(verbs, "join", "join the daemon that made a token", run_join)
    join.add_argument("token", metavar="TOKEN", help="what `worker invite` printed")
    join.add_argument("--name", metavar="NAME", help="what this host is called there (default: its host name)")
    listing = inner_verb(verbs, "list", "show the workers, and what they have free", run_list)
    add_daemon(listing)
    remove = inner_verb(verbs, "remove", "let a worker in no more", run_remove)
    remove.add_argument("name", metavar="NAME", help="its name")
    add_daemon(remove)


def run(args: argparse.Namespace) -> int:
    """Lend until it is told to stop."""
    from supervisor.cli.lending_here import lend  # noqa: PLC0415 - only this needs the half of the program

    return lend(args)


def run_invite(args: argparse.Namespace) -> int:
    """Print a token."""
    found = connect(args).client.post(f"{_PATH}/invitations", {"host": args.host, "seconds": args.expires})
    if args.json:
        print_json(found)
        return OK
    print(found["token"])
    note(
        f"On the other host: `{command_name(os.environ)} worker join TOKEN`. "
        f"It is of use once, and for {duration(args.expires)}."
    )
    return OK


def run_join(args: argparse.Namespace) -> int:
    """Join the daemon that made the token."""
    from supervisor.cli.lending_here import join_daemon  # noqa: PLC0415 - cryptography takes long

    try:
        token = decode(args.token)
    except BadToken:
        raise UsageError("That is no token of `worker invite`; give it whole, as one word.") from None
    name = args.name or name_like(socket.gethostname().partition(".")[0])
    require(is_name(name), f"'{name}' is no name for a worker: letters, digits, `.`, `_`, `-`, at most 64.")
    member = join_daemon(token, name)
    if args.json:
        print_json({"name": member.name, "host": member.host, "port": member.port})
    else:
        print(
            f"joined {member.host}:{member.port} as {member.name}; "
            f"`{command_name(os.environ)} worker` lends from now on"
        )
    return OK


def run_list(args: argparse.Namespace) -> int:
    """Print all workers."""
    found = connect(args).client.get(_PATH)
    if args.json:
        print_json(found)
    elif found["workers"]:
        print_table(_HEADERS, [row for worker in found["workers"] for row in _rows(worker)])
    elif found["listen"] is None:
        print("this daemon takes no workers; `workers.listen` of its configuration lets it")
    else:
        print("no host has joined; `worker invite` makes a token for one")
    if not args.json and found["unable"]:
        note(f"The gateway for workers does not run: {found['unable']}.")
    return OK


def run_remove(args: argparse.Namespace) -> int:
    """Let a worker in no more."""
    found = connect(args).client.delete(f"{_PATH}/{quote(args.name, safe='')}", {})
    if args.json:
        print_json(found)
    else:
        print(f"{found['name']} is removed")
    return OK


def _rows(worker: Json) -> list[tuple[str, ...]]:
    trip = "-" if worker["rtt_ms"] is None else f"{worker['rtt_ms']:.1f} ms"
    joined = f"{ago(worker['joined_at'])} ago"
    rows: list[tuple[str, ...]] = [
        (
            worker["name"],
            worker["state"],
            device["name"].partition("/")[2],
            size(device["total_bytes"]),
            size(device["free_bytes"]),
            "-" if device["engine"] is None else str(device["engine"]),
            trip,
            joined,
            worker["reason"],
        )
        for device in worker["devices"]
    ]
    return rows or [(worker["name"], worker["state"], "-", "-", "-", "-", trip, joined, worker["reason"])]
