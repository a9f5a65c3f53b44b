"""Whose a connection on the loopback interface is: local users can reach ports there, and must get nothing."""

from __future__ import annotations

import psutil


def owner_among(parent: int, theirs: tuple[str, int], ours: tuple[str, int]) -> int | None:
    """Return the process, among the descendants of `parent`, whose connection it is; None: it is nobody's there.

    theirs, ours: host and port of its two ends. Blocks for as long as a look through those processes takes.
    """
    try:
        found = psutil.Process(parent).children(recursive=True)
    except psutil.Error:
        return None
    return next((one.pid for one in found if _has(one, theirs, ours)), None)


def _has(process: psutil.Process, theirs: tuple[str, int], ours: tuple[str, int]) -> bool:
    try:
        connections = process.net_connections("tcp4")
    except psutil.Error:
        return False
    return any(one.raddr and tuple(one.laddr) == theirs and tuple(one.raddr) == ours for one in connections)
