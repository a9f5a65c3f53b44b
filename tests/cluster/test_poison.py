"""A node that writes what makes no sense into the cluster's store: the others pass over it, and go on."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import msgspec
import nats
import pytest

from supervisor.cluster.kept import membership
from supervisor.core.cluster.messages import MOST_BYTES, key_of
from supervisor.core.cluster.natsconfig import inbox_of
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import wait_until
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

SENSELESS: Final = (
    *(b"", b"\0", b"\xff", b"[", b"[" * 100_000, b"null", b"{}", b"1e999", b'"\\ud800"'),
    *(b'{"node":"\xff"}', b'{"model":"\xed\xa0\x80","node":"two"}', b'{"model":"far","node":"two\xff"}'),
    *(b'{"name":"x\xff"}', b'{"node":"one","number":1,"started_at":"\xff","free_bytes":0}'),
    b'{"name":"x","host":"127.0.0.1","port":1,"program":"\xff"}',
    b"{" + b" " * MOST_BYTES + b"}",
)


HEADERS: Final = (
    *(b"NATS/1.0\r\nX: \xff\r\n\r\n", b"NATS/1.0 404 \xff\r\n\r\n", b"NATS/1.0\r\n" + b"A: b\r\n" * 500 + b"\r\n"),
    *(b"\xff\xff\xff\xff\r\n\r\n", b"x"),
)
"""The last one stays: it is in the store for whoever begins to hear."""


async def poison(node: Node) -> int:
    """Write all of it under names that are there, and under others; return how much was taken."""
    kept = membership(node.home / "cluster")
    assert kept is not None
    (server,) = kept.servers
    url = f"tls://{server.host}:{server.port}"
    client = await nats.connect(url, tls=kept.dialling(), tls_hostname="node", inbox_prefix=inbox_of(kept.own))
    taken = 0
    try:
        stream = client.jetstream()
        names = [key_of(one) for one in ("far", "near", "nowhere")]
        keys = [("nodes", "ghost"), ("nodes", "x"), *(("claims", one) for one in (*names, "x"))]
        for said in SENSELESS:
            await client.publish("supervisor.load", said)
            for bucket, key in keys:
                try:
                    await stream.publish(f"$KV.{bucket}.{key}", said)
                    taken += 1
                except nats.errors.Error:  # larger than the store takes
                    assert len(said) > MOST_BYTES
        await client.flush()
        assert client._transport is not None
        for header in HEADERS:
            for subject in ("supervisor.load", "$KV.nodes.ghost", f"$KV.claims.{names[0]}"):
                size = len(header)
                client._transport.write(b"HPUB %b %d %d\r\n%b{}\r\n" % (subject.encode(), size, size + 2, header))
        with contextlib.suppress(nats.errors.Error, OSError):  # it hears nothing of it that it could read
            await client.flush(timeout=5)
    finally:
        await client.close()
    return taken


def test_nodes_pass_over_what_makes_no_sense(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    model = {"file": str(scripted_model("one two.", n_ctx=2048)), "ctx_size": 2048, "parallel": 1, "cache_ram": 0}
    nodes = cluster_of(engine_binary, one={"models": {"near": model}}, two={"models": {"far": model}})
    with nodes as (one, two):
        assert asyncio.run(poison(two)) > 80
        two.did("load", "far")
        wait_until(lambda: "far" in one.sees(two)["claims"], "one still hears claims")
        for node in (one, two):
            for name in ("near", "far"):
                answer = node.daemon.chat(name, "hi")
                assert answer.status_code == 200, answer.text
        asyncio.run(poison(one))
        two.end()
        two.start()  # and is connected, though all of it is there when it begins to hear
        wait_until(lambda: one.sees(two).get("state") == "ready", "it is back")
        assert two.daemon.chat("near", "hi").status_code == 200
        log = (one.home / "daemon-output.log").read_text()
        assert "Traceback" not in log
        assert "cluster_disconnected" not in log
        assert "ghost" not in msgspec.json.encode(one.cluster()).decode()
