"""An end to a conversation with a stranger: a time limit for each step is none for all of them."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def cut_off(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Shut the connection down where the block takes longer; then raises TimeoutError, whatever became of the block."""
    over = threading.Event()

    def cut() -> None:
        over.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # below TLS, which another thread is at work with

    timer = threading.Timer(seconds, cut)
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not over.is_set():
            raise
    finally:
        timer.cancel()
    if over.is_set():
        raise TimeoutError(f"not done after {seconds:g} s")
