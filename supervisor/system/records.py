"""Records of running children on disk: a small JSON file each, so that the next daemon can end what is left.

A leftover is ended only if it is provably ours: the pid lives, started at the recorded moment, and leads its own
session, as every child of ours does. Anything else (a recycled pid, a damaged file) costs nothing but the record.
The caller must be the only daemon of its state folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from supervisor.system import processes
from supervisor.system.atomic import atomic_write, scratches
from supervisor.system.owned import inner_folder, read_own, written_later

_SAME_START_S = 0.5  # psutil derives the moment from the boot time, which moves a little with the clock
_KILL_S = 3.0
_MOST = 1 << 16  # bytes of a record
_MOST_PID = (1 << 31) - 1


@dataclass(frozen=True)
class Record:
    """A child: its pid, its start in seconds since the epoch, the program and its socket's path ("" = none)."""

    pid: int
    create_time: float
    program: str
    socket: str


@dataclass(frozen=True)
class Ended:
    """The fate of one record: `outcome` is `killed`, `gone`, `not ours` or `unreadable`."""

    pid: int | None
    program: str
    outcome: str


def write_record(folder: Path, record: Record) -> Path:
    """Write a child's record whole or not at all; returns its path."""
    path = inner_folder(folder) / f"{record.pid}.json"
    atomic_write(path, json.dumps(asdict(record)).encode())
    return path


def end_leftovers(folder: Path, *, term_s: float = 3.0, spared: Collection[int] = ()) -> list[Ended]:
    """End what an earlier daemon left behind and clear the records; blocks until that is done.

    `term_s` is how long each gets between SIGTERM and SIGKILL. `spared`: pids that are no leftovers.
    """
    if not folder.is_dir():
        return []
    for scratch in written_later(folder.glob(scratches("*.json"))):
        scratch.unlink(missing_ok=True)
    kept = {f"{pid}.json" for pid in spared}
    return [_end(path, term_s) for path in written_later(sorted(folder.glob("*.json"))) if path.name not in kept]


def living_children(folder: Path) -> list[int]:
    """Return the pids of recorded children that live and are provably ours."""
    records = (_read(path) for path in sorted(folder.glob("*.json")))
    return [record.pid for record in records if record is not None and _judge(record) == "ours"]


def _end(path: Path, term_s: float) -> Ended:
    record = _read(path)
    if record is None:
        path.unlink(missing_ok=True)
        return Ended(None, path.name, "unreadable")
    state = _judge(record)
    if state == "ours":
        _kill(record.pid, term_s)
    if state != "not ours":
        _remove_socket(record.socket)
    path.unlink(missing_ok=True)
    return Ended(record.pid, record.program, "killed" if state == "ours" else state)


def _read(path: Path) -> Record | None:
    try:
        found = json.loads(read_own(path, _MOST))
        record = Record(**found)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    kinds = (type(record.pid), type(record.create_time), type(record.program), type(record.socket))
    return record if kinds == (int, float, str, str) and 1 < record.pid <= _MOST_PID else None


def _judge(record: Record) -> Literal["ours", "not ours", "gone"]:
    """Tell whether what runs under the recorded pid is the recorded child."""
    started = processes.create_time(record.pid)
    if started is None or not processes.is_running(record.pid):
        return "gone"
    same = abs(started - record.create_time) <= _SAME_START_S  # false for what is no number
    if not same or record.pid not in processes.session_members(record.pid):
        return "not ours"
    return "ours"


def _kill(session: int, term_s: float) -> None:
    for number, seconds in ((signal.SIGTERM, term_s), (signal.SIGKILL, _KILL_S)):
        processes.signal_session(session, number)
        deadline = time.monotonic() + seconds
        while processes.session_members(session) and time.monotonic() < deadline:
            time.sleep(0.01)  # not our child: there is no event to wait for


def _remove_socket(socket: str) -> None:
    if socket and Path(socket).is_socket():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket)
