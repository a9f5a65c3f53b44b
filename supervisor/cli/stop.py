"""`stop`: ends the daemon and with it every engine."""

from __future__ import annotations

import argparse
import time

from supervisor.cli.daemon import Daemon, explicit_url, find
from supervisor.cli.exits import OK
from supervisor.cli.options import Subparsers, add_common
from supervisor.cli.render import print_json
from supervisor.errors import DaemonError, DaemonUnreachable

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
    pid = stop_daemon(args)
    if args.json:
        print_json({"stopped": pid is not None, "pid": pid})
    else:
        print("no daemon is running" if pid is None else f"the daemon (pid {pid}) has stopped")
    return OK


def stop_daemon(args: argparse.Namespace) -> int | None:
    """End the daemon these arguments mean and wait for it; its pid, or None where none runs.

    Raises DaemonError when it is still there after STOP_SECONDS.
    """
    try:
        daemon = find(args)
    except DaemonUnreachable as error:
        if isinstance(error.__cause__, ConnectionRefusedError):
            return None
        raise
    if daemon is None:
        return None
    pid = int(daemon.status["pid"])
    daemon.client.post("/api/v1/shutdown", {})
    deadline = time.monotonic() + STOP_SECONDS
    while _is_there(daemon, pid, remote=explicit_url(args) is not None):
        if time.monotonic() > deadline:
            raise DaemonError(f"The daemon (pid {pid}) was asked to stop but is still there after {STOP_SECONDS:g} s.")
        time.sleep(_LOOK_AGAIN_SECONDS)
    return pid


def _is_there(daemon: Daemon, pid: int, *, remote: bool) -> bool:
    """Whether the process lives; of a daemon named by URL only whether it answers, its pid may be another machine's."""
    if not remote:
        from supervisor.processes import is_running  # noqa: PLC0415 - psutil

        return is_running(pid)
    try:
        return bool(daemon.client.get("/health"))
    except DaemonError as error:
        return not isinstance(error, DaemonUnreachable)
