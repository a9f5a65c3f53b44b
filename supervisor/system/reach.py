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

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_INNER = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fd00::/8")))
"""RFC 1918 and RFC 4193; other reserved networks stand for the internet behind some proxies."""


class Reach(IntEnum):
    """Whoever can reach an address: everybody, its network, this machine."""

    EVERYBODY = 0
    NETWORK = 1
    MACHINE = 2


def reach_of(host: str) -> Reach:
    """Return the reach of a host, by the nearest of its addresses; a name that has none here is everybody's. Blocks."""
    found = [Reach.EVERYBODY]
    with suppress(OSError, UnicodeError):
        for *_, place in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM):
            found.append(_reach(ipaddress.ip_address(str(place[0]).partition("%")[0])))
    return max(found)


def leads_inside(start: str, target: str) -> bool:
    """Return whether the way from one host to another leads to what not everybody can reach who reaches the first."""
    return start != target and reach_of(target) > reach_of(start)


def _reach(address: _Address) -> Reach:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return _reach(mapped)
    if address.is_loopback or address.is_unspecified or address.is_link_local:
        return Reach.MACHINE
    return Reach.NETWORK if any(address in network for network in _INNER) else Reach.EVERYBODY
