"""Signals that come while one image of the daemon becomes the next: none kills it, and none that ends it is lost."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Final

_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_WISHES: Final = ("SIGHUP", "SIGUSR2")


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Within the block, signals that end the daemon wait. The image that is executed in it inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear(ask: Callable[[], None]) -> None:
    """In the next image, ask to stop for each such signal from now on, and for one that has waited."""
    for one in _ENDING:
        signal.signal(one, lambda number, frame: ask())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def ignore_wishes() -> None:
    """Ignore the signals that ask for something else, until the next image listens to them."""
    for name in _WISHES:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
