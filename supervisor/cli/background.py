"""Starting the daemon in the background: the same `serve`, in a session of its own, writing to the daemon's log.

Finding one that runs is `cli/daemon`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import supervisor
from supervisor.cli.daemon import Daemon, api_key, at_endpoint, explicit_url, find, note_configuration, same_version
from supervisor.cli.progress import Report
from supervisor.cli.render import note
from supervisor.core.environment import MANAGERS
from supervisor.errors import DaemonAlreadyRunning, DaemonError, RemoteError
from supervisor.system.owned import inner_folder, own_folder
from supervisor.system.paths import Places, places

START_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.02
_TRY_AGAIN_SECONDS = 0.3
_LOG_TAIL_BYTES = 4000
_LOG_TAIL_LINES = 20

_ENDED = re.compile(r"^error: (?P<message>.+) \[(?P<code>\w+)\]\Z", re.MULTILINE | re.DOTALL)

# Starts this very package in a fresh interpreter, whatever the working folder or another `supervisor` on the path says.
_BOOT = (
    "import sys; root = sys.argv.pop(1); root in sys.path or sys.path.insert(0, root); "
    "from supervisor.cli.main import main; sys.exit(main())"
)


def ensure(args: argparse.Namespace, report: Report) -> Daemon:
    """Return the daemon these arguments mean; start it in the background if none runs locally, or once it has stopped.

    Raises as `connect`; EngineNotFound or EngineUnusable before one is started for an engine that cannot be used.
    """
    daemon = find(args)
    extra = _given(args)
    if daemon is None or (daemon.stopping and not explicit_url(args)):
        if getattr(args, "engine", None):
            from supervisor.llamacpp.locate import locate  # noqa: PLC0415 - only an engine that was named is looked at here

            locate(places(os.environ), os.environ, args.engine)
        report("starting the daemon", None)
        return start(serve_command(extra), places(os.environ), api_key(args))
    unused = [option for option in extra[::2] if option != "--config"]
    if unused:
        note(f"note: a daemon is running already and keeps its own settings; not used: {' '.join(unused)}")
    note_configuration(args, daemon)
    return same_version(daemon)


def serve_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of `serve` with this interpreter and this package."""
    root = Path(supervisor.__file__).parents[1]
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-c", _BOOT, str(root), "serve", *arguments]


def start(command: Sequence[str], where: Places, key: str | None) -> Daemon:
    """Run a daemon's command line and wait until it answers.

    A daemon that finds the state folder taken exits; then the one that holds it is the answer as soon as it speaks, and
    should it be on its way out, the command is run again. Raises the error with which the process
    ended, DaemonError with the end of the log where it said none or START_SECONDS pass.
    """
    own_folder(where.state)
    inner_folder(where.daemon_log.parent)
    deadline = time.monotonic() + START_SECONDS
    with where.daemon_log.open("a+b") as log:
        while time.monotonic() < deadline:
            daemon = _attempt(command, where, key, log, deadline)
            if daemon is not None:
                return daemon
    raise DaemonError(f"Another daemon holds {where.daemon_lock} but does not answer; its log is {where.daemon_log}.")


def _given(args: argparse.Namespace) -> list[str]:
    """Return those of `add_background`'s options that were given, as arguments of `serve`."""
    found: list[str] = []
    for name in ("config", "port", "engine"):
        value = getattr(args, name, None)
        if value is not None:
            found += [f"--{name}", str(value)]
    return found


def _attempt(command: Sequence[str], where: Places, key: str | None, log: BinaryIO, deadline: float) -> Daemon | None:
    """Run one process. None: the state folder belongs to another daemon, which has not spoken up yet."""
    begin = log.seek(0, os.SEEK_END)
    env = {name: value for name, value in os.environ.items() if name not in MANAGERS}
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    try:
        daemon = _answer(where, key, deadline, process)
    except BaseException:
        _end(process)
        raise
    if daemon is not None:
        process.returncode = 0  # nobody waits for it: it outlives this command
        return daemon
    if process.poll() is None:
        _end(process)
        message = f"The daemon did not answer within {START_SECONDS:g} s"
    elif _lost_the_race(_tail(log, begin)):
        return _answer(where, key, min(deadline, time.monotonic() + _TRY_AGAIN_SECONDS), None)
    else:
        message = f"The daemon ended at once (exit status {process.returncode})"
    tail = _tail(log, begin)
    raise _told(tail) or DaemonError(f"{message}; its log is {where.daemon_log}.", log_lines=tail)


def _told(lines: Sequence[str]) -> RemoteError | None:
    """Return the error with which the daemon ended, if it printed one."""
    found = _ENDED.search("\n".join(lines))
    return found and RemoteError(found["message"], code=found["code"])


def _answer(where: Places, key: str | None, until: float, process: subprocess.Popen[bytes] | None) -> Daemon | None:
    """Return the state folder's daemon once it answers; None when `process` has ended or the time is up."""
    while time.monotonic() < until:
        ended = process is not None and process.poll() is not None
        daemon = at_endpoint(where, key)
        if daemon is not None and not daemon.stopping:
            return daemon
        if ended:
            return None
        time.sleep(_LOOK_AGAIN_SECONDS)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def _lost_the_race(lines: Sequence[str]) -> bool:
    return any(DaemonAlreadyRunning.code in line for line in lines)


def _tail(log: BinaryIO, begin: int) -> tuple[str, ...]:
    """Return the last lines written after `begin`."""
    end = log.seek(0, os.SEEK_END)
    log.seek(max(begin, end - _LOG_TAIL_BYTES))
    return tuple(log.read().decode("utf-8", "replace").splitlines()[-_LOG_TAIL_LINES:])
