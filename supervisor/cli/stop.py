"""`stop`: ends the daemon and with it every engine."""

from __future__ import annotations

import argparse
import time

from supervisor.cli.daemon import Daemon, explicit_url, find
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_common
from supervisor.cli.render import note, print_json
from supervisor.errors import DaemonError, DaemonUnreachable
from supervisor.system.processes import is_running

STOP_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.02


def add_parser(subparsers: Subparsers) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "stop", help="end the daemon and its engines", description="End the daemon and wait until its process is gone."
    )
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Stop it and say so."""
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
    """What is waited for: said before the wait, which may take as long as `server.drain`."""
    busy = sum(model.get("leases") or 0 for model in daemon.models)
    requests = f"; waiting for {busy} running {'request' if busy == 1 else 'requests'}" if busy else ""
    return f"stopping the daemon (pid {daemon.status['pid']}){requests}"


def stop_daemon(daemon: Daemon, *, remote: bool = False) -> int:
    """End the daemon and wait until it is gone; returns the pid it had.

    Of a `remote` one only its silence is waited for: the pid may be another machine's. Raises DaemonError when it is
    still there after STOP_SECONDS.
    """
    pid = int(daemon.status["pid"])
    daemon.client.post("/api/v1/shutdown", {})
    deadline = time.monotonic() + STOP_SECONDS
    while _answers(daemon) if remote else is_running(pid):
        if time.monotonic() > deadline:
            raise DaemonError(f"The daemon (pid {pid}) was asked to stop but is still there after {STOP_SECONDS:g} s.")
        time.sleep(_LOOK_AGAIN_SECONDS)
    return pid


def _find(args: argparse.Namespace) -> Daemon | None:
    try:
        return find(args)
    except DaemonUnreachable as error:
        if isinstance(error.__cause__, ConnectionRefusedError):
            return None
        raise


def _answers(daemon: Daemon) -> bool:
    try:
        return bool(daemon.client.get("/health"))
    except DaemonError as error:
        return not isinstance(error, DaemonUnreachable)
