"""Tell that something shown of an engine, a queue or a download has changed; whoever wants to know then looks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """The meeting point of those who change something and those who show it."""

    def __init__(self) -> None:
        self._watchers: dict[asyncio.Event, None] = {}  # in order, so that the same happens again in a test

    def tell(self) -> None:
        """Let those who watch look again."""
        for watcher in self._watchers:
            watcher.set()

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set on every change; whoever waits clears it."""
        changed = asyncio.Event()
        self._watchers[changed] = None
        try:
            yield changed
        finally:
            del self._watchers[changed]
