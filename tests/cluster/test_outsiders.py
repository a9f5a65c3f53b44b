"""Who gets in at the ports of a cluster: no stranger, nodes where they have to, and who was removed no more."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nats
import psutil
import pytest
from nats.js.kv import KeyValue

from supervisor.cluster.kept import membership
from supervisor.core.cluster import messages as m
from supervisor.core.cluster.natsconfig import inbox_of
from supervisor.core.requests.scopes import ROWS
from supervisor.core.routes import ASKED, SERVED, UPSTREAM
from tests.api.test_key_scopes import called
from tests.cluster.stage import Node, cluster_of
from tests.support.daemon import scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

SAID = "one two three four five."


@pytest.fixture(scope="module")
def pair(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[tuple[Node, Node]]:
    models = {"far": {"file": str(scripted_model(SAID, n_ctx=8192)), "ctx_size": 8192, "cache_ram": 0}}
    with cluster_of(engine_binary, one={}, two={"models": models}) as (one, two):
        yield one, two


def certificate_of(node: Node) -> ssl.SSLContext:
    """How a node dials others."""
    kept = membership(node.home / "cluster")
    assert kept is not None
    return kept.dialling()


def serial_of(node: Node) -> str:
    """The number of its certificate."""
    kept = membership(node.home / "cluster")
    assert kept is not None
    return kept.serial


async def written(node: Node, record: bytes) -> m.Node | None:
    """What the cluster's store has of a node in the end, after this was written there."""
    kept = membership(node.home / "cluster")
    assert kept is not None
    (server,) = kept.servers
    url = f"tls://{server.host}:{server.port}"
    client = await nats.connect(url, tls=kept.storing(), tls_hostname="node", inbox_prefix=inbox_of(kept.own))
    try:
        nodes = await client.jetstream().key_value("nodes")
        last = await nodes.put("two", record)
        watcher = await nodes.watch("two")
        async with asyncio.timeout(PATIENCE):
            while True:
                entry = await watcher._updates.get()
                if isinstance(entry, KeyValue.Entry) and (entry.revision or 0) > last:
                    return None if entry.operation else m.read(entry.value or b"", m.Node)
    finally:
        await client.close()


def none() -> ssl.SSLContext:
    """How a stranger dials nodes."""
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    return stranger


def at_port_of(node: Node, tls: ssl.SSLContext) -> httpx.Client:
    return httpx.Client(base_url=f"https://127.0.0.1:{node.port}", verify=tls, timeout=PATIENCE, trust_env=False)


ANSWERED = [row for row in ROWS if row.path in {*SERVED, *(one.path for one in ASKED)} or row.path.startswith(UPSTREAM)]
"""What nodes pass on for clients."""


@pytest.mark.parametrize("known", [True, False], ids=["a node", "a stranger"])
def test_no_route_of_the_daemon_is_there_but_those_that_nodes_pass_on(pair: tuple[Node, Node], known: bool) -> None:
    one, two = pair
    with at_port_of(one, certificate_of(two) if known else none()) as client:
        asked = 0
        for row in ROWS:
            if known and (row in ANSWERED or row.path == "/api/v1/plan"):
                continue
            answer = client.request(*called(row), json=None if row.method == "GET" else {})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found"), row
            asked += 1
    assert asked > 60
    if known:
        open_to_nodes = {row.path for row in ROWS if row.path.startswith("/api/v1/") and row in ANSWERED}
        assert not open_to_nodes


def test_plans_are_of_models_that_are_known_as_they_are_known(pair: tuple[Node, Node], tmp_path: Path) -> None:
    one, two = pair
    (tmp_path / "there.gguf").write_bytes(b"GGUF")
    with at_port_of(two, certificate_of(one)) as client:
        assert client.post("/api/v1/plan", json={"target": "far"}).json()["fits"] is True
        for target in (str(tmp_path / "there.gguf"), "/etc/passwd", "owner/repo", "a.gguf", "hf://owner/repo"):
            answer = client.post("/api/v1/plan", json={"target": target})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found"), target
        wrong: tuple[Any, ...] = ({"target": "far", "mmproj": "/etc/passwd"}, {"target": "far", "x": 1}, {}, [], 1)
        for body in wrong:
            answer = client.post("/api/v1/plan", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), body


def test_every_port_is_one_of_those_that_are_tested(pair: tuple[Node, Node]) -> None:
    one, two = pair
    for node, known in ((one, {one.port, one.store_port}), (two, {two.port})):
        own = psutil.Process(node.daemon.pid)
        found = {
            connection.laddr.port
            for process in (own, *own.children(recursive=True))
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert found == known | {httpx.URL(node.daemon.url).port}


def test_who_is_removed_gets_nothing_more(
    pair: tuple[Node, Node], engine_binary: Path, scripted_model: ScriptedModel
) -> None:
    one, two = pair
    old, serial = certificate_of(two), serial_of(two)
    asked = {"model": "far", "messages": [{"role": "user", "content": "hi"}]}
    with at_port_of(one, old) as client:
        assert client.post("/api/v1/plan", json={"target": "demo"}).status_code == 200
        assert "is removed" in one.did("cluster", "remove", "two")
        refused = client.post("/api/v1/plan", json={"target": "demo"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "node_unknown")
        wait_until(lambda: not two.cluster()["connected"], "its connection has ended")
        wait_until(lambda: "do not let it in" in (two.cluster()["unable"] or ""), "it is not let in again")
        assert one.daemon.http.post("/v1/chat/completions", json=asked).status_code == 404
        record = m.bytes_of(m.Node("two", "127.0.0.1", two.port, "1", serial=serial))
        assert asyncio.run(written(one, record)) is None, "what it has written in the moment before it was cut off"
        assert one.sees(two) == {}
        with scratch_home() as home:
            namesake = Node("two", home, engine_binary, {})
            namesake.join(one)
            namesake.start()
            try:
                wait_until(lambda: one.sees(namesake).get("state") == "ready", "the new one is there")
                left = asyncio.run(written(one, record))
                assert left is not None
                assert left.serial == serial_of(namesake)
                assert one.sees(namesake)["state"] == "ready"
                assert client.post("/api/v1/plan", json={"target": "demo"}).status_code == 403
                assert "do not let it in" in (two.cluster()["unable"] or "")
                with at_port_of(namesake, old) as other:
                    assert other.post("/api/v1/plan", json={"target": "demo"}).status_code == 403
                with at_port_of(one, certificate_of(namesake)) as other:
                    assert other.post("/api/v1/plan", json={"target": "demo"}).status_code == 200
            finally:
                namesake.end()
