"""The networks that this machine is in."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from types import SimpleNamespace

import psutil
import pytest

from supervisor.system.networks import own_networks


def test_this_machine_is_in_its_own() -> None:
    assert any(ip_address("127.0.0.1") in network for network in own_networks() if network.version == 4)


def interface(address: str, netmask: str | None) -> SimpleNamespace:
    return SimpleNamespace(address=address, netmask=netmask)


def test_masks_of_both_families_count_and_other_families_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "eth0": [
            interface("8.8.8.5", "255.255.255.0"),
            interface("2606:4700::5%eth0", "ffff:ffff:ffff:ffff::"),
            interface("00:11:22:33:44:55", None),
        ],
        "tun0": [interface("9.9.9.9", None)],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    assert own_networks() == (ip_network("8.8.8.0/24"), ip_network("2606:4700::/64"), ip_network("9.9.9.9/32"))
