"""The door for clients: who may come in, and how many."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from supervisor.config import Settings
from supervisor.config.settings import ServerSettings
from supervisor.core.requests.access import AccessRules, is_loopback
from supervisor.core.requests.media import FetchRules, networks
from supervisor.daemon.lock import FileShares, url_of
from supervisor.daemon.tls import Certificates
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.connections import ClientLimits


@dataclass(frozen=True)
class Door:
    """The listener on `host`, how the files that the process may open are shared out, and the certificate, for TLS."""

    listener: socket.socket
    shares: FileShares
    host: str
    certificates: Certificates | None = None

    @property
    def url(self) -> str:
        """The URL for clients."""
        return url_of(self.listener, self.host, tls=self.certificates is not None)

    def limits(self, settings: Settings) -> ClientLimits:
        """Return what a client may take; never more connections than there are files for."""
        server, most = settings.server, self.shares.connections
        return ClientLimits(
            connections=min(server.max_connections or most, most),
            head=server.max_header_kib << 10,
            fields=server.max_headers,
            head_s=server.header_timeout,
            body_s=server.body_timeout,
            idle_s=server.idle_timeout,
        )

    def rules(self, settings: Settings) -> AccessRules:
        """Return who may use the daemon."""
        server = settings.server
        return AccessRules(
            api_keys=server.api_keys,
            allowed_hosts=tuple(one.lower() for one in server.allowed_hosts),
            allowed_origins=server.allowed_origins,
            check_host=is_loopback(self.host) or not server.api_keys,
            any_address=not is_loopback(self.host),
        )


def bodies_of(server: ServerSettings) -> Bodies:
    """Room for what is relayed."""
    keys = ("server.max_body_mib", "server.max_buffered_mib")
    return Bodies(server.max_body_mib << 20, server.max_buffered_mib << 20, keys)


def fetch_rules(settings: Settings) -> FetchRules:
    """Return what may be fetched of that which requests name by its address."""
    server = settings.server
    return FetchRules(
        fetching=server.fetch_urls,
        allowed=networks(server.fetch_allow),
        most=server.fetch_max_mib << 20,
        seconds=server.fetch_timeout,
    )
