"""The few things to know and do about processes that `asyncio` and `psutil` leave open.

A child leads a session of its own, so its session id is its pid, and everything it forks stays in that session
unless it asks for another. The kernel gives no pid away while a session or group of that number has members:
a session that is found by its number is the one that was started. Nothing is ever looked up by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LOOK_S = 0.25
_MORE = 500  # thousandths of all memory, counted on top of what a process takes: proc_pid_oom_score_adj(5)
_MOST_MORE = 1000


@dataclass(frozen=True)
class Activity:
    """The total use by the processes of a session: seconds of CPU, bytes read and written."""

    cpu_s: float
    io_bytes: int


def parent_death_hook() -> Callable[[], None] | None:
    """Return the function between fork and exec that has a child killed when this process dies; None if unsupported.

    Linux only. The kernel ties the signal to the *thread* that forked, so the hook is given out on the main thread
    alone: there the thread's death is the process's. The library is loaded here, before the fork, because a fork of
    a process with threads may hold the loader's locks for ever.
    """
    if sys.platform != "linux" or threading.get_native_id() != os.getpid():
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before the request took effect: nothing would ever fire
            os._exit(1)

    return die_with_parent


def end_first(pid: int) -> None:
    """Have the kernel end this child, rather than us or another program, where the machine has no memory left.

    Linux only. What it forks from now on inherits that. Does nothing where it has ended, or the system forbids it.
    """
    adjustment = Path(f"/proc/{pid}/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        adjustment.write_text(str(min(int(adjustment.read_text()) + _MORE, _MOST_MORE)))


def session_members(session: int) -> tuple[int, ...]:
    """Return the pids of the live processes in a session; zombies that wait to be reaped do not count."""
    return tuple(pid for pid in psutil.pids() if _in_session(pid, session) and is_running(pid))


def signal_session(session: int, number: signal.Signals) -> bool:
    """Send a signal to every process of a session, also to those that made a process group of their own.

    Returns whether there was one.
    """
    members = session_members(session)
    for pid in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(members)


async def gone(pid: int) -> None:
    """Return once the process has ended; it need not be a child of ours, or reaped."""
    if not hasattr(os, "pidfd_open"):
        while is_running(pid):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_S)
        return
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)


def is_running(pid: int) -> bool:
    """Tell whether the process exists and is not merely waiting to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # somebody else's, on macOS
        return True


def create_time(pid: int) -> float | None:
    """Return the start of the process, in seconds since the epoch; None if it does not exist or is not ours to see."""
    try:
        return psutil.Process(pid).create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def children(pid: int) -> set[int]:
    """Return the pids of the process's children, those that wait to be reaped included."""
    try:
        return {one.pid for one in psutil.Process(pid).children()}
    except psutil.NoSuchProcess:
        return set()


def kill_tree(pid: int) -> None:
    """Send SIGKILL to a process and to all below it, as they are now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for one in (*root.children(recursive=True), root):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                one.kill()


def parent(pid: int) -> int | None:
    """Return the pid of the process's parent; None if it does not exist or is not ours to see."""
    try:
        return psutil.Process(pid).ppid()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def activity(session: int) -> Activity:
    """Sum what the live processes of a session have consumed. Platforms without I/O counters report 0 bytes."""
    cpu_s, io_bytes = 0.0, 0
    for pid in session_members(session):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = psutil.Process(pid)
            times = process.cpu_times()
            cpu_s += times.user + times.system
            if sys.platform != "darwin":  # psutil has no such counters there
                counters = process.io_counters()
                io_bytes += counters.read_bytes + counters.write_bytes
    return Activity(cpu_s, io_bytes)


def anonymous_bytes(pid: int) -> int | None:
    """Return a process's host memory without mapped files, in bytes; None where the platform does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return None
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) << 10 if found else None


def session_anonymous_bytes(session: int) -> int | None:
    """Sum `anonymous_bytes` of all live processes of a session."""
    found = [size for pid in session_members(session) if (size := anonymous_bytes(pid)) is not None]
    return sum(found) if found else None


def session_resident_bytes(session: int) -> int | None:
    """Sum what all live processes of a session hold of the host's memory, pages of files included."""
    found = [size for pid in session_members(session) if (size := _resident_bytes(pid)) is not None]
    return sum(found) if found else None


def _resident_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def _in_session(pid: int, session: int) -> bool:
    if sys.platform == "win32":
        return pid == session
    try:
        return os.getsid(pid) == session
    except (ProcessLookupError, PermissionError):
        return False
