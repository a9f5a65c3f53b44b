"""The daemon's own standing on the machine: its lock, its address, its endpoint file."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor import __version__
from supervisor.config.settings import ServerSettings
from supervisor.core.requests.access import is_loopback
from supervisor.core.text.plaintext import one_line
from supervisor.errors import (
    AddressInUse,
    DaemonAlreadyRunning,
    HostNotAllowed,
    InsecureBind,
    TlsRequired,
    Unauthorized,
)
from supervisor.system.atomic import atomic_write
from supervisor.system.deadline import cut_off
from supervisor.system.owned import own_folder
from supervisor.system.paths import Places

try:
    import fcntl
    import resource
except ImportError:  # Windows has neither; there the address alone keeps a second daemon away
    fcntl = None  # type: ignore[assignment]  # the module is absent, not of another type
    resource = None  # type: ignore[assignment]  # likewise

_OPEN_FILES = 10_240  # macOS takes no more
_RESERVE = 512  # files for engines, logs and the hub, where there are that many
_ANSWER_SECONDS = 2.0
_SHOWN = 40  # characters of what a program says of itself that may be another one
_ANSWER_BYTES = 1 << 22  # the status of some thousand models
_SPEAKS_TLS = "it speaks TLS"
_BACKLOG = 2048  # connections that wait to be accepted; uvicorn's own number


@dataclass(frozen=True)
class FileShares:
    """The division of the files that this process may open.

    connections: of clients, or of nodes of a cluster; each may need a second file, for its engine. backlog:
    connections that wait to be accepted; all of them may be at once, before the first is counted.
    """

    connections: int
    backlog: int


def file_shares(open_files: int, doors: int = 1) -> FileShares:
    """Divide the files: a part is kept for engines and management. doors: for which so many connections are taken."""
    backlog = min(_BACKLOG, open_files // 8) // doors
    reserve = min(_RESERVE, open_files // 4)
    return FileShares(max(1, (open_files - reserve - backlog * doors) // 2 // doors), max(1, backlog))


def allow_many_files() -> int:
    """Let this process and its engines open more files than a shell's usual 256 or 1024: a stream takes two.

    Returns how many it may open.
    """
    allowed = _OPEN_FILES
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(ValueError, OSError):  # macOS may have a lower limit that it does not tell
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = _OPEN_FILES if soft == resource.RLIM_INFINITY else min(soft, _OPEN_FILES)
    return allowed


def check_bind(server: ServerSettings, *, insecure: bool) -> None:
    """Refuse to listen where others can reach us without a key."""
    open_to_others = [host for host, _ in server.addresses() if not is_loopback(host)]
    if open_to_others and not server.api_keys and not insecure:
        raise InsecureBind(
            f"{open_to_others[0]} can be reached from other machines. Set SUPERVISOR_API_KEY or server.api_keys, "
            "or give --insecure to go without."
        )


@contextlib.contextmanager
def daemon_lock(places: Places, held: int | None = None) -> Iterator[int]:
    """Hold the state folder for this process, and yield the descriptor of its file; raises DaemonAlreadyRunning.

    held: the descriptor under which an earlier image of this process holds it.
    """
    own_folder(places.state)
    with os.fdopen(_opened_lock(places.daemon_lock) if held is None else held, "w") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DaemonAlreadyRunning(
                    f"A daemon already uses {places.state}. Use it, end it with `supervisor stop`, "
                    "or set SUPERVISOR_HOME to another folder."
                ) from None
        yield lock.fileno()


def _opened_lock(path: Path) -> int:
    """Open the file for this user alone: whoever may read a file can lock it."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if hasattr(os, "fchmod"):
        with contextlib.suppress(OSError):  # another user's file, as root may have left one
            os.fchmod(opened, 0o600)
    return opened


def listen(host: str, port: int, backlog: int = _BACKLOG) -> socket.socket:
    """Return a socket that listens already, so that nobody who learns of it is turned away.

    Port 0: a free one. Raises AddressInUse.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        if taken and (holder := _daemon_at(host, port)) is not None:
            url = f"{_scheme(tls=holder == _SPEAKS_TLS)}://{_in_url(host)}:{port}"
            raise AddressInUse(
                f"{host}:{port} is taken by a daemon of this program ({holder}) that has another state folder. Use it "
                f"with --url {url}, end it with `supervisor stop --url …`, or choose another address with --port or "
                "server.port."
            ) from None
        reason = "is taken by another program" if taken else f"cannot be bound ({error.strerror or error})"
        raise AddressInUse(f"{host}:{port} {reason}; choose another with --port or server.port.") from None
    return listener


def listen_on(
    addresses: Sequence[tuple[str, int]],
    backlog: int,
    stack: contextlib.ExitStack,
    there: Callable[[str, int], socket.socket | None] = lambda host, port: None,
) -> list[socket.socket]:
    """Return a socket for each address, as `listen` does; `stack` closes them. Raises AddressInUse.

    there: gives one that listens at an address already.
    """
    return [stack.enter_context(there(host, port) or listen(host, port, backlog)) for host, port in addresses]


def _daemon_at(host: str, port: int) -> str | None:
    """Return the status of a daemon of ours that answers there; None if something else is there, or nothing answers."""
    connection = http.client.HTTPConnection(_reachable(host), port, timeout=_ANSWER_SECONDS)
    try:
        connection.connect()
        with cut_off(connection.sock, _ANSWER_SECONDS):
            connection.request("GET", "/api/v1/status")
            response = connection.getresponse()
            answer = response.read(_ANSWER_BYTES)
        told = json.loads(answer)
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    finally:
        connection.close()
    if not isinstance(told, dict):
        return None
    if response.status == 200 and {"pid", "version", "models"} <= told.keys():
        pid, version = (one_line(str(told[key]))[:_SHOWN] for key in ("pid", "version"))
        return f"pid {pid}, version {version}"
    error = told.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    if code == TlsRequired.code:
        return _SPEAKS_TLS
    return "it asks for a key" if code in {Unauthorized.code, HostNotAllowed.code} else None


def _reachable(host: str) -> str:
    """Return the address of this machine at which a listener on `host` answers."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _in_url(host: str) -> str:
    name = _reachable(host)
    return f"[{name}]" if ":" in name else name


def url_of(listener: socket.socket, host: str, *, tls: bool) -> str:
    """Return the base URL at which this machine reaches the listener."""
    port = listener.getsockname()[1]
    return f"{_scheme(tls=tls)}://{_in_url(host)}:{port}"


def _scheme(*, tls: bool) -> str:
    return "https" if tls else "http"


@contextlib.contextmanager
def endpoint_file(
    places: Places, url: str, started_at: float, secret: str, certificate: Callable[[], str | None] = lambda: None
) -> Iterator[Callable[[], None]]:
    """Tell other programs of this user where the daemon is, for as long as it runs, and how it proves that it is it.

    certificate: which it shows now. Gives a function that writes the file anew, for when that changes.
    """
    content = {"url": url, "secret": secret, "pid": os.getpid(), "version": __version__, "started_at": started_at}

    def write() -> None:
        shown = certificate()
        told = content if shown is None else {**content, "certificate": shown}
        atomic_write(places.endpoint_file, json.dumps(told).encode())

    write()
    try:
        yield write
    finally:
        places.endpoint_file.unlink(missing_ok=True)


def has_terminal() -> bool:
    """Tell whether this process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
