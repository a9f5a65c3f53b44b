"""Tell which networks this machine is in: their hosts are its neighbours, whatever their addresses are."""

from __future__ import annotations

import ipaddress

import psutil


def own_networks() -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the networks that this machine's interfaces are in. Blocks."""
    found = (one for addresses in psutil.net_if_addrs().values() for one in addresses)
    return tuple(network for one in found if (network := _network(one.address, one.netmask)) is not None)


def _network(address: str, mask: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network of an interface; the address alone where the mask is missing; None for other families."""
    try:
        own = ipaddress.ip_address(address.partition("%")[0])
        bits = int(ipaddress.ip_address(mask)).bit_count() if mask else own.max_prefixlen
        return ipaddress.ip_network((own, bits), strict=False)
    except ValueError:
        return None
