"""`cluster`: many daemons as one."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from urllib.parse import quote

from supervisor.cli.client import Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import add_daemon, command_name, inner_verb, length_of_time, require
from supervisor.cli.registry import Verb
from supervisor.cli.render import duration, note, print_json, print_table, size
from supervisor.cli.sharing import add_verbs
from supervisor.core.cluster.ports import PEER_PORT, STORE_PORT
from supervisor.core.workers.names import is_name, name_like
from supervisor.core.workers.token import BadToken, decode
from supervisor.errors import UsageError

VERB = Verb(
    summary="have daemons of several hosts answer as one",
    order=246,
    description="""Have the daemons of several hosts answer as one: each is the front door for the models of all. The
first host begins the cluster, and each other one joins with a token. What changes a host's part in it counts from the
next start of its daemon on.""",
    examples=(
        ("cluster init --host 10.0.0.1", "on the first host, once; then `serve`"),
        ("cluster invite", "on the first host: a token for one more"),
        ("cluster join TOKEN --host 10.0.0.2", "on the other host, once; then `serve`"),
        ("cluster nodes", "who is there, and what runs where"),
        ("cluster drain studio", "have a node take nothing new"),
        ("cluster config set models.yaml", "models that all nodes know"),
    ),
)

_PATH = "/api/v1/cluster"
_HEADERS = ("NODE", "STATE", "ADDRESS", "CONFIG", "FREE", "MODEL", "IS", "BUSY", "WAITING")


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="cluster_verb", required=True)
    init = inner_verb(verbs, "init", "begin a cluster with this host", run_init)
    _part(init)
    init.add_argument("--server", action="append", type=_place, metavar="HOST[:PORT]", default=[],
                      help="a host that will join and run a NATS server, too; give two: any one may fail")  # fmt: skip
    invite = inner_verb(verbs, "invite", "make a token with which one host can join", run_invite)
    invite.add_argument("--reach", metavar="HOST", help="how the other host reaches this one (default: as nodes do)")
    invite.add_argument("--expires", type=length_of_time, metavar="TIME", default=3600.0,
                        help="how long it is of use, such as 10m or 2h (default: 1h)")  # fmt: skip
    add_daemon(invite)
    join = inner_verb(verbs, "join", "join the cluster of the node that made a token", run_join)
    join.add_argument("token", metavar="TOKEN", help="what `cluster invite` printed")
    _part(join)
    for name, summary, run in (
        ("status", "show whether this node hears the others", run_status),
        ("nodes", "show all nodes, and what runs on each", run_nodes),
        ("leave", "take this host out of the cluster", run_leave),
    ):
        add_daemon(inner_verb(verbs, name, summary, run))
    remove = inner_verb(verbs, "remove", "take out a node that is no more", run_remove)
    remove.add_argument("node", metavar="NODE", help="its name")
    add_daemon(remove)
    drain = inner_verb(verbs, "drain", "have a node take nothing new, and unload what it has", run_drain)
    drain.add_argument("node", metavar="NODE", help="its name")
    drain.add_argument("--undo", action="store_true", help="have it take requests again")
    add_daemon(drain)
    add_verbs(verbs)


def run_init(args: argparse.Namespace) -> int:
    """Begin a cluster."""
    from supervisor.cli.clustering import begin_here  # noqa: PLC0415 - cryptography takes long

    require(len(args.server) in {0, 2}, "--server is given twice or not at all: one NATS server, or three.")
    found = begin_here(_name(args), (args.host, args.port), args.store_port, args.server)
    return _tell_joined(args, found, f"{found['name']} is the first node")


def run_join(args: argparse.Namespace) -> int:
    """Join the cluster of the node that made the token."""
    from supervisor.cli.clustering import join_here  # noqa: PLC0415 - cryptography takes long

    try:
        token = decode(args.token)
    except BadToken:
        raise UsageError("That is no token of `cluster invite`; give it whole, as one word.") from None
    found = join_here(token, _name(args), (args.host, args.port), args.store_port)
    return _tell_joined(args, found, f"{found['name']} has joined")


def run_invite(args: argparse.Namespace) -> int:
    """Print a token."""
    found = connect(args).client.post(f"{_PATH}/invitations", {"host": args.reach, "seconds": args.expires})
    if args.json:
        print_json(found)
        return OK
    print(found["token"])
    note(
        f"On the other host: `{command_name(os.environ)} cluster join TOKEN --host ITS_ADDRESS`. "
        f"It is of use once, and for {duration(args.expires)}."
    )
    return OK


def run_status(args: argparse.Namespace) -> int:
    """Print what this node knows of the cluster."""
    found = connect(args).client.get(_PATH)
    if args.json:
        print_json(found)
        return OK
    there = sum(one["state"] != "away" for one in found["nodes"])
    said = "connected" if found["connected"] else f"not connected: {found['unable']}"
    print(f"{found['node']}: {said}; {there} of {len(found['nodes'])} nodes are there")
    print(f"NATS: {', '.join(found['servers'])}{' (this node runs one)' if found['serves'] else ''}")
    print(f"configuration: {_version(found)}")
    _tell_problems([{**found, "name": found["node"]}])
    return OK


def run_nodes(args: argparse.Namespace) -> int:
    """Print all nodes."""
    found = connect(args).client.get(_PATH)
    if args.json:
        print_json(found["nodes"])
    else:
        print_table(_HEADERS, [row for node in found["nodes"] for row in _rows(node)])
        _tell_problems(found["nodes"])
    return OK


def run_drain(args: argparse.Namespace) -> int:
    """Have a node take nothing new, or again."""
    path = f"{_PATH}/nodes/{quote(args.node, safe='')}/drain"
    found = connect(args).client.post(path, {"on": not args.undo})
    if args.json:
        print_json(found)
    else:
        print(f"{found['name']} is {found['state']}")
    return OK


def run_remove(args: argparse.Namespace) -> int:
    """Take out a node."""
    found = connect(args).client.delete(f"{_PATH}/nodes/{quote(args.node, safe='')}", {})
    if args.json:
        print_json(found)
    else:
        print(f"{found['node']} is removed")
    return OK


def run_leave(args: argparse.Namespace) -> int:
    """Take this host out of the cluster."""
    found = connect(args).client.post(f"{_PATH}/leave", {})
    if args.json:
        print_json(found)
    else:
        print(f"{found['node']} has left; `{command_name(os.environ)} restart` has its daemon be alone")
    return OK


def _part(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="HOST", default=socket.gethostname(),
                        help="name or address at which other nodes reach this host (default: its name)")  # fmt: skip
    parser.add_argument("--port", type=_port, metavar="PORT", default=PEER_PORT,
                        help="port for other nodes (default: 8586)")  # fmt: skip
    parser.add_argument("--store-port", type=_port, metavar="PORT", default=STORE_PORT,
                        help="port of the NATS server, on a host that runs one (default: 8587)")  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="what this host is called there (default: its host name)")


def _port(text: str) -> int:
    found = int(text)
    if not 0 < found < 1 << 16:
        raise ValueError
    return found


def _place(text: str) -> tuple[str, int]:
    """Read a host with or without a port."""
    host, colon, port = text.rpartition(":")
    return (host, _port(port)) if colon and "]" not in port else (text, STORE_PORT)


def _name(args: argparse.Namespace) -> str:
    found = args.name or name_like(socket.gethostname().partition(".")[0])
    require(is_name(found), f"'{found}' is no name for a node: letters, digits, `.`, `_`, `-`, at most 64.")
    return str(found)


def _tell_joined(args: argparse.Namespace, found: Json, said: str) -> int:
    if args.json:
        print_json(found)
        return OK
    print(f"{said}, at {found['host']}:{found['port']}")
    note(f"It counts from the next start of the daemon on: `{command_name(os.environ)} restart`, or `serve`.")
    return OK


def _rows(node: Json) -> list[tuple[str, ...]]:
    free = "-" if node["free_bytes"] is None else size(node["free_bytes"])
    named = node["name"] + (" (this)" if node["here"] else "")
    first = (named, node["state"], node["address"], _version(node), free)
    models = [(one["id"], one["state"], f"{one['busy']}/{one['slots']}", str(one["waiting"])) for one in node["models"]]
    rows = models or [("-", "-", "-", "-")]
    return [(*first, *rows[0]), *(("", "", "", "", "", *row) for row in rows[1:])]


def _version(node: Json) -> str:
    """Return the version of the cluster's configuration that is in force on a node."""
    version = str(node["config_version"]) if node["config_version"] else "none"
    return f"{version} (!)" if node["config_problem"] else version


def _tell_problems(nodes: Sequence[Json]) -> None:
    for node in nodes:
        if node["config_problem"]:
            note(f"{node['name']} has not taken the cluster's configuration over: {node['config_problem']}")
