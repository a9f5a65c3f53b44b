"""How near an address is."""

from __future__ import annotations

import pytest

from supervisor.system.reach import Reach, leads_inside, reach_of

MACHINE = ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]", "0.0.0.0", "::", "169.254.169.254", "fe80::1"]
CLOUDS = ["168.63.129.16", "192.0.0.192", "100.100.100.200", "::ffff:168.63.129.16"]
NETWORK = [
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.101.102.103",
    "fd12::1",
    "::ffff:10.0.0.1",
    "fec0::1",
    "64:ff9b::10.0.0.1",
    "2002:a00:1::",
]
EVERYBODY = ["8.8.8.8", "172.32.0.1", "2001:4860:4860::8888", "198.18.0.1", "fc00::1", "nobody.invalid", "", "a" * 300]


@pytest.mark.parametrize(
    ("host", "reach"),
    [
        *((host, Reach.MACHINE) for host in [*MACHINE, *CLOUDS, "::ffff:127.0.0.1"]),
        *((host, Reach.NETWORK) for host in NETWORK),
        *((host, Reach.EVERYBODY) for host in EVERYBODY),
    ],
)
def test_the_reach_of_an_address(host: str, reach: Reach) -> None:
    assert reach_of(host) is reach


@pytest.mark.parametrize("host", ["::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"])
def test_an_address_of_ipv4_within_one_of_ipv6_counts(host: str) -> None:
    assert reach_of(host) is Reach.MACHINE


def test_a_name_that_two_ways_of_writing_it_in_ascii_make_two_of_is_not_looked_up() -> None:
    with pytest.raises(UnicodeError):
        reach_of("fa\u00df.example")


@pytest.mark.parametrize(
    ("start", "target", "inside"),
    [
        ("8.8.8.8", "9.9.9.9", False),
        ("8.8.8.8", "10.0.0.1", True),
        ("8.8.8.8", "127.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "localhost", True),
        ("127.0.0.1", "localhost", False),
        ("127.0.0.1", "10.0.0.1", False),
    ],
)
def test_the_way_from_one_host_to_another(start: str, target: str, inside: bool) -> None:
    assert leads_inside(start, target) == inside
