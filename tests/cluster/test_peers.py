"""Other nodes as they are asked: one whose address is none cannot be reached, and nobody else is told anything."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from supervisor.cluster.joining import begin
from supervisor.cluster.kept import Server
from supervisor.cluster.peerclient import PeerClient
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.core.cluster.identity import Peer
from tests.cluster.fake_node import FakeNode, serving

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("host", ["a..b", "a" * 100, "-", "256.0.0.1", "127.0.0.1:1", "%"])
async def test_an_address_that_is_none_is_that_of_nobody(host: str) -> None:
    client = PeerClient(host, 1, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), Peer("b", "1f"))
    with pytest.raises(PeerUnreachable):
        async with client.send("GET", "/", [], b""):
            pass


async def test_who_is_at_the_address_of_a_node_and_is_another_is_asked_nothing(tmp_path: Path) -> None:
    """As a host that was removed, or another node of the cluster, that is on the way to it."""
    kept = begin(tmp_path, "me", ("127.0.0.1", 1), [Server("127.0.0.1", 2)])
    sha256 = "0" * 64
    with serving(FakeNode("b", {sha256: b"x"}), kept) as node:
        for who in (Peer("c", node.serial), Peer("b", "1f"), Peer("b", "")):
            client = PeerClient("127.0.0.1", node.port, kept.dialling(), who)
            with pytest.raises(PeerUnreachable, match="another host") as unreachable:
                async with client.send("HEAD", f"/cluster/blobs/{sha256}", [], b""):
                    pass
            assert not unreachable.value.sent
        assert node.asked == []
        client = PeerClient("127.0.0.1", node.port, kept.dialling(), Peer("b", node.serial))
        async with client.send("HEAD", f"/cluster/blobs/{sha256}", [], b"") as answer:
            assert answer.status == 200
        await client.close()
