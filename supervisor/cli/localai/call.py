"""One call of a client, and how many of them there may be."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from supervisor.errors import BodiesFull, QueueFull

MOST_CALLS = 64
"""Loads and requests at a time; what only asks for the state comes beside them."""

MOST_BYTES = 512 << 20
"""Of the messages of all requests at a time."""


class Call:
    """A call, with the connection on which the daemon answers it. Its client may leave at any moment, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.left = False

    def hold(self, connection: socket.socket) -> None:
        """Take the connection of what is asked now."""
        with self._lock:
            self._socket = connection
            left = self.left
        if left:
            _shut(connection)

    def leave(self) -> None:
        """End what is being asked: the daemon sees that its client has gone."""
        with self._lock:
            self.left = True
            connection = self._socket
        if connection is not None:
            _shut(connection)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class Gate:
    """Lets so many calls in, with so many bytes of messages."""

    def __init__(self, calls: int = MOST_CALLS, size: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._calls = calls
        self._size = size

    @contextlib.contextmanager
    def passed(self, size: int) -> Iterator[None]:
        """Be inside for the length of the block. Raises QueueFull, BodiesFull."""
        self._take(size)
        try:
            yield
        finally:
            with self._lock:
                self._calls += 1
                self._size += size

    def _take(self, size: int) -> None:
        with self._lock:
            if self._calls < 1:
                raise QueueFull("As many calls are at work as this backend takes; try again later.")
            if self._size < size:
                raise BodiesFull("The messages of the calls at work use all the memory that is allowed for them.")
            self._calls -= 1
            self._size -= size
