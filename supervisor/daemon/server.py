"""The HTTP server of the daemon, and how it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from supervisor.proxy.connections import Connections
from supervisor.proxy.server import RelayingProtocol


class Stop:
    """Whether the daemon is to stop, and whether at once: somebody asked twice."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()

    def ask(self) -> None:
        """Ask once more."""
        (self.now if self.asked.is_set() else self.asked).set()


class Server(uvicorn.Server):
    """uvicorn whose signals set our own event: engines end first, so that open streams get a proper ending."""

    def __init__(self, stop: Stop, app: ASGIApp, connections: Connections, backlog: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(RelayingProtocol, connections),  # type: ignore[arg-type]  # it is called, as a class would be
                ws="none",
                backlog=backlog,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=5,
            )
        )
        self._stop = stop
        self._leaving = asyncio.Event()

    async def main_loop(self) -> None:
        """uvicorn's own wakes ten times a second; once is enough for the `Date` header."""
        while not self.should_exit:
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._leaving.wait()

    def leave(self) -> None:
        """Close down: no new connections, the open ones to their end."""
        self.should_exit = True
        self._leaving.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first asks, the second ends the engines at once, a third one the server as well."""
        if self._stop.now.is_set():
            super().handle_exit(signal.SIGINT, frame)
            self._leaving.set()
        self._stop.ask()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where there is one."""
    try:
        import uvloop  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
