"""The HTTP server of the daemon, and how it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from supervisor.daemon.peers import PeerDoor, PeerProtocol
from supervisor.daemon.tls import Certificates
from supervisor.proxy.connections import Connections
from supervisor.proxy.server import RelayingProtocol
from supervisor.proxy.tls import Entrance, PlainProtocol, TlsListener

try:
    import uvloop
except ImportError:  # not on Windows
    uvloop = None  # type: ignore[assignment]  # the module is absent, not of another type


class Stop:
    """A request to stop the daemon: once to let requests end, twice for at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()

    def ask(self) -> None:
        """Ask once more."""
        (self.now if self.asked.is_set() else self.asked).set()


class Server(uvicorn.Server):
    """uvicorn whose signals set our own event: engines end first, so that open streams get a proper ending."""

    def __init__(
        self,
        stop: Stop,
        app: ASGIApp,
        connections: Connections,
        backlog: int,
        certificates: Certificates | None = None,
        peers: PeerDoor | None = None,
    ) -> None:
        super().__init__(_config(app, connections, backlog))
        self._stop = stop
        self._connections = connections
        self._certificates = certificates
        self._peers = peers
        self._leaving = asyncio.Event()
        self._taking: set[asyncio.Future[Any]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, with TLS where there is a certificate."""
        if self._certificates is None or sockets is None:
            await super().startup(sockets)
        else:
            self._listen_for_tls(self._certificates, sockets)
        if self._peers is not None:
            self.servers.append(self._let_in_peers(self._peers))

    def _listen_for_tls(self, certificates: Certificates, sockets: list[socket.socket]) -> None:
        entrance = Entrance(
            context=certificates.context,
            patience=lambda: self._connections.limits().head_s,
            most=self.config.backlog,
            protocol=partial(self._protocol, RelayingProtocol),
            plain=partial(self._protocol, PlainProtocol),
        )
        self.servers = [TlsListener(one, entrance) for one in sockets]  # type: ignore[misc]  # closed as asyncio's are
        self.started = True

    def _let_in_peers(self, peers: PeerDoor) -> Any:
        """Listen for other nodes of the cluster; return what is closed as asyncio's servers are."""
        config = _config(peers.app, peers.connections, self.config.backlog)

        def protocol() -> PeerProtocol:
            return PeerProtocol(peers, config, self.server_state, {})

        entrance = Entrance(
            context=lambda: peers.context,
            patience=lambda: peers.connections.limits().head_s,
            most=self.config.backlog,
            protocol=protocol,
            plain=partial(PlainProtocol, peers.strangers, config, self.server_state, {}),
        )
        return TlsListener(peers.listener, entrance)

    def accept(self, client: socket.socket) -> None:
        """Go on with a client's connection that another process has accepted."""
        client.setblocking(False)
        taking = asyncio.get_running_loop().connect_accepted_socket(partial(self._protocol, RelayingProtocol), client)
        self._taking.add(task := asyncio.ensure_future(taking))
        task.add_done_callback(self._taking.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _protocol(self, kind: type[RelayingProtocol]) -> RelayingProtocol:
        return kind(self._connections, self.config, self.server_state, {})

    async def main_loop(self) -> None:
        """Wake once a second for the `Date` header; uvicorn's own loop wakes ten times."""
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
        """Ask to stop on the first signal; end the engines at once on the second, the server on the third."""
        if self._stop.now.is_set():
            super().handle_exit(signal.SIGINT, frame)
            self._leaving.set()
        self._stop.ask()


def _config(app: ASGIApp, connections: Connections, backlog: int) -> uvicorn.Config:
    return uvicorn.Config(
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


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory; None if there is no uvloop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = getattr(uvloop, "new_event_loop", None)
    return factory
