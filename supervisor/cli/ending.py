"""Ending the daemon, and waiting until it is gone: for `stop` and `clean`."""

from __future__ import annotations

import time

from supervisor.cli.daemon import Daemon
from supervisor.errors import DaemonError, DaemonUnreachable
from supervisor.system.processes import is_running

STOP_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.02


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


def _answers(daemon: Daemon) -> bool:
    try:
        return bool(daemon.client.get("/health"))
    except DaemonError as error:
        return not isinstance(error, DaemonUnreachable)
