"""The door for clients: who may come in, and how many."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.config import Settings
from supervisor.config.settings import ServerSettings
from supervisor.core.requests.access import AccessRules, Place, RulesByAddress, is_loopback
from supervisor.core.requests.media import FetchRules, networks
from supervisor.daemon.lock import FileShares, url_of
from supervisor.daemon.tls import Certificates
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.connections import ClientLimits

_ANY = {"0.0.0.0", "::"}


@dataclass(frozen=True)
class Door:
    """The ways in.

    Attributes:
        listeners: one for each of `hosts`, the main one first.
        shares: how the files that the process may open are shared out.
        certificates: for TLS.
        ports: of the addresses as they are configured; 0: a free one was taken.
        lock: the descriptor of the locked file of the state folder.
        passed: the first listener came from the service manager.
    """

    listeners: Sequence[socket.socket]
    shares: FileShares
    hosts: Sequence[str]
    certificates: Certificates | None = None
    ports: Sequence[int] = ()
    lock: int | None = None
    passed: bool = False

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses as they are configured, the main one first."""
        return list(zip(self.hosts, self.ports, strict=True))

    @property
    def urls(self) -> list[str]:
        """The URLs for clients, the main one first."""
        tls = self.certificates is not None
        return [url_of(one, host, tls=tls) for one, host in zip(self.listeners, self.hosts, strict=True)]

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

    def rules(self, settings: Settings) -> RulesByAddress:
        """Return who may use the daemon, by the address that they came to."""
        found: dict[Place, AccessRules] = {}
        for one, host in zip(self.listeners, self.hosts, strict=True):
            address, port = one.getsockname()[:2]
            found[None if address in _ANY else address, port] = _rules(settings.server, host)
        return RulesByAddress(_rules(settings.server, self.hosts[0]), found)


def _rules(server: ServerSettings, host: str) -> AccessRules:
    return AccessRules(
        api_keys=server.api_keys,
        allowed_hosts=tuple(one.lower() for one in server.allowed_hosts),
        allowed_origins=server.allowed_origins,
        check_host=is_loopback(host) or not server.api_keys,
        any_address=not is_loopback(host),
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
