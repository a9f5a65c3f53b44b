"""Other nodes as they are asked: one whose address is none cannot be reached, and that is all."""

from __future__ import annotations

import ssl

import pytest

from supervisor.cluster.peerclient import PeerClient
from supervisor.cluster.peerresponse import PeerUnreachable

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("host", ["a..b", "a" * 100, "-", "256.0.0.1", "127.0.0.1:1", "%"])
async def test_an_address_that_is_none_is_that_of_nobody(host: str) -> None:
    client = PeerClient(host, 1, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    with pytest.raises(PeerUnreachable):
        async with client.send("GET", "/", [], b""):
            pass
