"""The way in for other nodes of a cluster: a port of its own, on which both sides have certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from supervisor.cluster.kept import Membership, membership
from supervisor.core.cluster.identity import Peer
from supervisor.errors import ClusterRefused
from supervisor.proxy.connections import Connections
from supervisor.proxy.elsewhere import PEER
from supervisor.proxy.server import RelayingProtocol
from supervisor.system.paths import Places


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
    """

    listener: socket.socket
    context: ssl.SSLContext
    app: ASGIApp
    connections: Connections


def seat_of(where: Places, listen: Callable[[str, int], socket.socket]) -> Seat | None:
    """Return this host's seat; None: it is in no cluster. Raises ClusterRefused, AddressInUse."""
    try:
        kept = membership(where.cluster)
    except (OSError, ValueError) as error:
        raise ClusterRefused(
            f"What {where.cluster} keeps of the cluster cannot be read ({error}). Remove that folder, and join anew."
        ) from None
    return None if kept is None else Seat(kept, listen(kept.host, kept.port))


class PeerProtocol(RelayingProtocol):
    """The protocol of a connection at that port: its requests carry whose certificate it has, if there is one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Find out who it is."""
        super().connection_made(transport)
        inside, peer = self.app, _peer_of(transport.get_extra_info("peercert"))
        if peer is not None:

            async def as_peer(scope: Scope, receive: Receive, send: Send) -> None:
                await inside({**scope, PEER: peer}, receive, send)

            self.app = as_peer


def _peer_of(certificate: Any) -> Peer | None:
    found = certificate or {}
    parts = found.get("subject", ())
    name = next((str(value) for one in parts for key, value in one if key == "commonName"), None)
    return None if name is None else Peer(name, str(found.get("serialNumber", "")).lower().lstrip("0"))
