"""Finding the daemon.

`--url`, else `$SUPERVISOR_URL`, else the endpoint file of the state folder. An endpoint file counts only while the
daemon that answers there proves on every connection, before it is sent anything else, that it knows the file's secret,
and gives the pid written in it; whatever a killed daemon left behind is ignored. A URL that the user gives is trusted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from supervisor import __version__
from supervisor.cli.client import Client, Json
from supervisor.cli.configured import other_configuration
from supervisor.cli.options import command_name
from supervisor.cli.render import note
from supervisor.errors import DaemonError, DaemonUnproven, DaemonUnreachable, DaemonVersionMismatch
from supervisor.system.owned import read_own
from supervisor.system.paths import Places, places

ENDING_SECONDS = 5.0
_ASK_AGAIN_SECONDS = 0.02
_MOST_ENDPOINT = 1 << 16  # bytes of the file


@dataclass(frozen=True)
class Daemon:
    """A daemon that answered: how to call it, and its status at that moment."""

    client: Client
    status: Json

    @property
    def base_url(self) -> str:
        """The base URL for an OpenAI client."""
        return f"{self.client.url}/v1"

    @property
    def stopping(self) -> bool:
        """True while it takes nothing new and lets its requests end."""
        return bool(self.status.get("stopping"))

    @property
    def models(self) -> list[Json]:
        """The status of every model it knows."""
        return list(self.status.get("models") or ())


@dataclass(frozen=True)
class Endpoint:
    """The contents of a running daemon's endpoint file."""

    url: str
    pid: int
    secret: str
    certificate: str | None = None


def find(args: argparse.Namespace) -> Daemon | None:
    """Return the daemon these arguments mean, of whatever version; None where no local one runs.

    Raises DaemonUnreachable for an explicit URL nobody answers at, DaemonError for a local daemon that hangs,
    RemoteError (a wrong key, for instance), UsageError.
    """
    url, key = explicit_url(args), api_key(args)
    if url:
        client = Client(url, key)
        return Daemon(client, client.get("/api/v1/status"))
    return at_endpoint(places(os.environ), key)


def connect(args: argparse.Namespace) -> Daemon:
    """Return the daemon these arguments mean. Raises DaemonUnreachable, DaemonVersionMismatch and as `find`."""
    return same_version(connect_any(args))


def connect_any(args: argparse.Namespace) -> Daemon:
    """Return the same, of whatever version it is. Raises DaemonUnreachable and as `find`."""
    daemon = find(args)
    if daemon is None:
        me = command_name(os.environ)
        raise DaemonUnreachable(f"No daemon is running; `{me} load demo` or `{me} start` starts one.")
    note_configuration(args, daemon)
    return daemon


def note_configuration(args: argparse.Namespace, daemon: Daemon) -> None:
    """Say that another configuration than the daemon's was found here; a daemon that was named by URL has its own."""
    if explicit_url(args):
        return
    other = other_configuration(daemon.status, os.environ, Path.cwd(), getattr(args, "config", None))
    if other is not None:
        note(f"note: {other[1]}")


def same_version(daemon: Daemon) -> Daemon:
    """Return the daemon. Raises DaemonVersionMismatch where it is of another version than this command."""
    theirs = daemon.status.get("version")
    if theirs != __version__:
        me = command_name(os.environ)
        raise DaemonVersionMismatch(
            f"The daemon at {daemon.client.url} is version {theirs}, this command is {__version__}. "
            f"`{me} upgrade` has this version take over; engines and requests go on."
        )
    return daemon


def explicit_url(args: argparse.Namespace) -> str | None:
    """Return the daemon's URL if the user gave one."""
    return args.url or os.environ.get("SUPERVISOR_URL") or None


def api_key(args: argparse.Namespace) -> str | None:
    """Return the key to send, if any."""
    return args.api_key or os.environ.get("SUPERVISOR_API_KEY") or None


def read_endpoint(where: Places) -> Endpoint | None:
    """Read the endpoint file; None where there is none, it is damaged, or another user has written it.

    Root, who may look after others' daemons, reads theirs.
    """
    file = where.endpoint_file
    try:
        is_root = hasattr(os, "getuid") and os.getuid() == 0
        found = json.loads(read_own(file, _MOST_ENDPOINT, anybody=is_root))
        certificate = found.get("certificate")
        shown = None if certificate is None else str(certificate)
        return Endpoint(str(found["url"]), int(found["pid"]), str(found["secret"]), shown)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


def at_endpoint(where: Places, key: str | None) -> Daemon | None:
    """Return the daemon of this state folder if it lives.

    Raises DaemonError where it lives but does not answer properly.

    One that breaks off its answer is about to end: it is asked again until it has, for ENDING_SECONDS at most.
    """
    until = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            return _at_endpoint(where, key)
        except DaemonError as error:
            if not _broke_off(error) or time.monotonic() > until:
                raise
        time.sleep(_ASK_AGAIN_SECONDS)


def _broke_off(error: DaemonError) -> bool:
    cause = error.__cause__
    return isinstance(cause, (http.client.HTTPException, ConnectionError)) and not isinstance(error, DaemonUnreachable)


def _at_endpoint(where: Places, key: str | None) -> Daemon | None:
    endpoint = read_endpoint(where)
    if endpoint is None:
        return None
    client = Client(endpoint.url, key, endpoint.secret, endpoint.certificate)
    try:
        status = client.get("/api/v1/status")
    except DaemonError as error:
        gone = isinstance(error, DaemonUnproven) or isinstance(error.__cause__, ConnectionRefusedError)
        if gone or not _lives(endpoint.pid):
            return None
        raise
    return Daemon(client, status) if status.get("pid") == endpoint.pid else None


def _lives(pid: int) -> bool:
    from supervisor.system.processes import is_running  # noqa: PLC0415 - psutil; only a daemon in trouble needs it

    return is_running(pid)
