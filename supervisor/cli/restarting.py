"""Have the program that is installed now take over from the running daemon: for `restart` and `upgrade`."""

from __future__ import annotations

import argparse

from supervisor.cli.background import ensure
from supervisor.cli.daemon import Daemon, connect, explicit_url
from supervisor.cli.ending import stop_daemon
from supervisor.cli.progress import progress
from supervisor.cli.render import note, print_json
from supervisor.errors import RemoteError, TakeoverUnsupported

_PATIENCE_S = 300.0  # the daemon's own limits are shorter


def take_over(args: argparse.Namespace, daemon: Daemon) -> None:
    """Have it taken over, and say so. Raises the daemon's TakeoverFailed as RemoteError.

    Where a running daemon cannot be replaced, it is stopped after its requests and started again, which is said.
    """
    with progress() as report:
        report("trying the program that is installed now", None)
        try:
            daemon.client.post("/api/v1/restart", {}, timeout=_PATIENCE_S)
        except RemoteError as error:
            if error.code != TakeoverUnsupported.code or explicit_url(args) is not None:
                raise
            note("a running daemon cannot be replaced here: it ends after its requests, and is started again")
            stop_daemon(daemon)
            ensure(args, report)
    now = connect(args)
    if args.json:
        print_json({"pid": now.status["pid"], "version": now.status["version"], "before": daemon.status["version"]})
    else:
        print(f"the daemon (pid {now.status['pid']}) runs version {now.status['version']}")
