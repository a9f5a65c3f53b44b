"""Tell how near an address is, since who is far away must not send us to what only we can reach.

A server elsewhere may answer with a redirect to this machine, whose services trust everybody who is on it, or to the
network that it stands in.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from enum import IntEnum
from typing import TypeAlias

from supervisor.core.requests.media import CLOUD_HOSTS

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_INNER = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fd00::/8", "fec0::/10"),
    )
)
"""RFC 1918, 6598, 4193 and 3879; other reserved networks stand for the internet behind some proxies."""

_WRAPPED = tuple(map(ipaddress.ip_network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Addresses whose last four bytes are one of IPv4: compatible and mapped (RFC 4291), translated (RFC 7915, 6052)."""


class Reach(IntEnum):
    """Whoever can reach an address: everybody, its network, this machine."""

    EVERYBODY = 0
    NETWORK = 1
    MACHINE = 2


def reach_of(host: str) -> Reach:
    """Return the reach of a host, by the nearest of its addresses; a name that has none here is everybody's. Blocks.

    host: in ASCII, as it is connected to. Python's own way to write others in ASCII is not that of HTTP clients, and
    would give the addresses of another name. Raises UnicodeError.
    """
    found = [Reach.EVERYBODY]
    asked = host.strip("[]").encode("ascii")
    with suppress(OSError):
        for *_, place in socket.getaddrinfo(asked, None, type=socket.SOCK_STREAM):
            found.append(_reach(ipaddress.ip_address(str(place[0]).partition("%")[0])))
    return max(found)


def leads_inside(start: str, target: str) -> bool:
    """Return whether the way from one host to another leads to what not everybody can reach who reaches the first."""
    return start != target and reach_of(target) > reach_of(start)


def _reach(address: _Address) -> Reach:
    wrapped = _wrapped(address) if isinstance(address, ipaddress.IPv6Address) else None
    inner = Reach.EVERYBODY if wrapped is None else _reach(wrapped)
    is_own = address.is_loopback or address.is_unspecified or address.is_link_local
    if is_own or any(address in network for network in CLOUD_HOSTS):
        return Reach.MACHINE
    return Reach.NETWORK if any(address in network for network in _INNER) else inner


def _wrapped(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the address of IPv4 that a gateway, or this machine, makes of one of IPv6."""
    if any(address in network for network in _WRAPPED):
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.sixtofour
