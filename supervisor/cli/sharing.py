"""`cluster config …`: the configuration that the nodes of a cluster share."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

from supervisor.cli.client import Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.options import Subparsers, add_daemon, command_name, count, inner_verb, positive, require
from supervisor.cli.render import ago, note, print_json, print_table, size
from supervisor.errors import ConfigError, UsageError

_PATH = "/api/v1/cluster/config"
_MOST = 1 << 18  # bytes of a text
_HEAD = "# Version {} of the cluster's configuration"
_HEADED = re.compile(r"# Version (\d{1,7}) of the cluster's configuration.*(?:\n|$)")
_FILE = "YAML with `models`, `defaults`, `groups`, `macros`"
_TIMEOUT = 60.0
_HEADERS = ("VERSION", "SET", "NODE", "SIZE")


def add_verbs(verbs: Subparsers) -> None:
    """Add `config` with its verbs."""
    told = "show and set the configuration that all nodes share"
    config = verbs.add_parser("config", help=told, description=f"{told[:1].upper()}{told[1:]}.")
    inner = config.add_subparsers(title="verbs", metavar="VERB", dest="cluster_config_verb", required=True)
    show = inner_verb(inner, "show", "print it, in its newest version", run_show)
    show.add_argument("--version", metavar="N", type=positive, help="another version")
    add_daemon(show)
    setting = inner_verb(inner, "set", "set its next version, which every node takes over", run_set)
    setting.add_argument("file", metavar="FILE", help=f"{_FILE}; `-`: standard input")
    _add_expected(setting, "the version that the file was made from (default: as the first line from `show` says)")
    add_daemon(setting)
    check = inner_verb(inner, "check", "say what is wrong with a file", run_check)
    check.add_argument("file", metavar="FILE", help=f"{_FILE}; `-`: standard input")
    history = inner_verb(inner, "history", "list the versions that are kept", run_history)
    add_daemon(history)
    revert = inner_verb(inner, "revert", "set an earlier version anew, as the next one", run_revert)
    revert.add_argument("version", metavar="N", type=positive, help="which")
    _add_expected(revert, "the version that is there now (default: the newest, whichever it is)")
    add_daemon(revert)


def run_show(args: argparse.Namespace) -> int:
    """Print a version under a line that says which it is."""
    found = connect(args).client.get(_PATH, {"version": args.version} if args.version else None)
    if args.json:
        print_json(found)
        return OK
    said = "nothing was set yet" if not found["version"] else f"set at {found['node']}, {_when(found['at'])}"
    print(f"{_HEAD.format(found['version'])}, {said}.")
    print(_HEADED.sub("", found["text"], count=1) if _HEADED.match(found["text"]) else found["text"], end="")
    return OK


def run_set(args: argparse.Namespace) -> int:
    """Set the next version."""
    from supervisor.config.shared import load_shared  # noqa: PLC0415 - start-up time

    text = _text(args.file)
    load_shared(text, args.file)
    client = connect(args).client
    expected = _expected(args, text)
    if expected is None and not args.force:
        expected = client.get(_PATH)["version"]
        require(
            expected == 0,
            f"Which version was the file made from? `--expect {expected}` says that it was the newest one, and nothing "
            f"is set if another has come meanwhile; `{command_name(os.environ)} cluster config show` prints it. "
            "`--force` sets it whatever is there.",
        )
    return _tell_set(args, client.post(_PATH, {"text": text, "expected": expected}, _TIMEOUT))


def run_check(args: argparse.Namespace) -> int:
    """Check a file; return 1 where something is wrong."""
    from supervisor.config.faults import as_json  # noqa: PLC0415 - start-up time
    from supervisor.config.shared import load_shared  # noqa: PLC0415 - as above

    try:
        models = list(load_shared(_text(args.file), args.file).settings.models)
    except ConfigError as error:
        if not args.json or not error.faults:
            raise
        print_json({"ok": False, "faults": as_json(error)})
        return FAILED
    if args.json:
        print_json({"ok": True, "models": models})
    else:
        print(f"{args.file}: ok; models: {', '.join(models) or 'none'}")
    return OK


def run_history(args: argparse.Namespace) -> int:
    """List the versions."""
    found = connect(args).client.get(f"{_PATH}/history")
    if args.json:
        print_json(found)
    elif not found["versions"]:
        print("nothing was set yet; `cluster config set FILE` sets the first version")
    else:
        rows = [(str(one["version"]), ago(one["at"]), one["node"], size(one["bytes"]))
                for one in found["versions"]]  # fmt: skip
        print_table(_HEADERS, rows)
    return OK


def run_revert(args: argparse.Namespace) -> int:
    """Set an earlier version anew."""
    body = {"version": args.version, "expected": args.expect}
    return _tell_set(args, connect(args).client.post(f"{_PATH}/revert", body, _TIMEOUT))


def _add_expected(parser: argparse.ArgumentParser, told: str) -> None:
    parser.add_argument("--expect", metavar="N", type=count, help=f"{told}; if another is there, nothing is set")
    if parser.prog.endswith(" set"):
        parser.add_argument("--force", action="store_true", help="set it whatever version is there")


def _tell_set(args: argparse.Namespace, found: Json) -> int:
    if args.json:
        print_json(found)
        return OK
    print(f"version {found['version']} is set")
    if found["problem"]:
        note(f"warning: the node that was asked has not taken it over: {found['problem']}")
    note(f"`{command_name(os.environ)} cluster nodes` says which nodes have taken it over.")
    return OK


def _expected(args: argparse.Namespace, text: str) -> int | None:
    require(args.expect is None or not args.force, "Give either --expect or --force.")
    if args.force or args.expect is not None:
        return None if args.force else int(args.expect)
    headed = _HEADED.match(text)
    return int(headed[1]) if headed else None


def _text(name: str) -> str:
    """Return the contents of a file. Raises UsageError."""
    try:
        if name == "-":
            content = sys.stdin.buffer.read(_MOST + 1)
        else:
            with Path(os.path.expanduser(name)).open("rb") as stream:
                content = stream.read(_MOST + 1)
        require(len(content) <= _MOST, f"{name} is larger than {_MOST >> 10} KiB, which all nodes can share at most.")
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}.") from None


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
