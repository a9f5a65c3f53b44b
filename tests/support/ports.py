"""Ports of 127.0.0.1 that a test gives to a program by number."""

from __future__ import annotations

import atexit
import socket
import sys
from contextlib import ExitStack
from typing import Final

_KEPT: Final = ExitStack()
atexit.register(_KEPT.close)


def free_port() -> int:
    """A port that nobody else gets, even if the program that is to listen there needs a while to come.

    A bound socket keeps it until this process ends: the kernel gives the port to nobody who asks for any, nor to a
    connection. Who asks for it by number gets it beside ours, which never listens, as both say SO_REUSEADDR. Only Linux
    shares like that; elsewhere it is a port that is free now.
    """
    return _in_a_row(1)


def free_pair() -> int:
    """Such a port, and the next one."""
    return _in_a_row(2)


def _in_a_row(count: int) -> int:
    while True:
        with ExitStack() as stack:
            first = _bound(stack, 0)
            try:
                for more in range(1, count):
                    _bound(stack, first + more)
            except (OSError, OverflowError):  # somebody has it, or there is none
                continue
            if sys.platform == "linux":
                _KEPT.push(stack.pop_all())
            return first


def _bound(stack: ExitStack, port: int) -> int:
    one = stack.enter_context(socket.socket())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    return int(one.getsockname()[1])
