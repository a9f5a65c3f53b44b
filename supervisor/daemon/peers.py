"""The way in for other nodes of a cluster: a port of its own, on which both sides have certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from supervisor.cluster.kept import Membership, kept_config, membership, peer_of
from supervisor.config.shared import Shared
from supervisor.core.cluster.identity import Peer
from supervisor.errors import ClusterRefused, ConfigError
from supervisor.proxy.connections import ClientLimits, Connections
from supervisor.proxy.elsewhere import PEER
from supervisor.proxy.server import RelayingProtocol
from supervisor.system.paths import Places

_log = structlog.get_logger()

_STRANGERS: Final = 32
_STRANGER_S: Final = 10.0


@dataclass(frozen=True)
class Seat:
    """This host's part in a cluster, and the socket on which other nodes come in."""

    kept: Membership
    listener: socket.socket


@dataclass(frozen=True)
class PeerDoor:
    """The way in.

    Attributes:
        app: serves what comes in; a scope has the node under `PEER`.
        context: for new connections.
        connections: of nodes. strangers: of those who have no certificate, and may ask to join, or are no members.
        is_member: whether who has a certificate is a node, still and already.
    """

    listener: socket.socket
    context: ssl.SSLContext
    app: ASGIApp
    connections: Connections
    strangers: Connections
    is_member: Callable[[Peer], bool]


def strangers_limits(limits: ClientLimits) -> ClientLimits:
    """Return the limits of connections that are of no node: they take nothing from nodes."""
    return replace(limits, connections=_STRANGERS, body_s=_STRANGER_S, idle_s=_STRANGER_S)


def kept_of(where: Places) -> Membership | None:
    """Return what is kept of this host's cluster; None: it is in none. Raises ClusterRefused."""
    try:
        return membership(where.cluster)
    except (OSError, ValueError) as error:
        raise ClusterRefused(
            f"What {where.cluster} keeps of the cluster cannot be read ({error}). Remove that folder, and join anew."
        ) from None


def seat_of(kept: Membership | None, listen: Callable[[tuple[str, int]], socket.socket]) -> Seat | None:
    """Return this host's seat; None: it is in no cluster. Raises AddressInUse."""
    return None if kept is None else Seat(kept, listen(kept.place))


def shared_here(where: Places) -> Shared | None:
    """Return the cluster's configuration as it was last in force here; None where there is none that can be read.

    The daemon starts without it then: the cluster tells it again.
    """
    try:
        return kept_config(where.cluster)
    except (OSError, ValueError, ConfigError) as error:
        _log.error("cluster_config_unreadable", folder=str(where.cluster), reason=str(error))
        return None


class PeerProtocol(RelayingProtocol):
    """The protocol of a connection at that port: its requests carry whose certificate it has, if there is one."""

    def __init__(self, door: PeerDoor, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(door.connections, config, server_state, app_state)
        self._strangers = door.strangers
        self._is_member = door.is_member

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Find out who it is."""
        peer = peer_of(transport.get_extra_info("peercert"))
        if peer is None or not self._is_member(peer):
            self._connections, self._limits = self._strangers, self._strangers.limits()
        super().connection_made(transport)
        inside = self.app
        if peer is not None:

            async def as_peer(scope: Scope, receive: Receive, send: Send) -> None:
                await inside({**scope, PEER: peer}, receive, send)

            self.app = as_peer
