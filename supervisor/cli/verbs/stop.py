"""`stop`: ends the daemon and with it every engine."""

from __future__ import annotations

import argparse

from supervisor.cli.daemon import Daemon, explicit_url, find
from supervisor.cli.ending import stop_daemon
from supervisor.cli.exits import OK
from supervisor.cli.registry import Verb
from supervisor.cli.render import note, print_json
from supervisor.errors import DaemonUnreachable

VERB = Verb(
    summary="end the daemon and its engines",
    order=200,
    description="End the daemon and wait until its process is gone.",
    examples=(("stop", "the daemon and every engine"),),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the common options are all."""


def run(args: argparse.Namespace) -> int:
    """Stop the daemon and say so."""
    daemon = _find(args)
    if daemon is not None and not args.json:
        note(_announced(daemon))
    pid = stop_daemon(daemon, remote=explicit_url(args) is not None) if daemon else None
    if args.json:
        print_json({"stopped": pid is not None, "pid": pid})
    else:
        print("no daemon is running" if pid is None else f"the daemon (pid {pid}) has stopped")
    return OK


def _announced(daemon: Daemon) -> str:
    """Say what is waited for, before the wait: it may take as long as `server.drain`."""
    busy = sum(model.get("leases") or 0 for model in daemon.models)
    requests = f"; waiting for {busy} running {'request' if busy == 1 else 'requests'}" if busy else ""
    return f"stopping the daemon (pid {daemon.status['pid']}){requests}"


def _find(args: argparse.Namespace) -> Daemon | None:
    try:
        return find(args)
    except DaemonUnreachable as error:
        if isinstance(error.__cause__, ConnectionRefusedError):
            return None
        raise
