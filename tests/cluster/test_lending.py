"""Files for other nodes, where who asks does not take them, and what is opened in the cache."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from supervisor.cluster.lending import Lending
from supervisor.errors import FileNotHere, LendingFull
from supervisor.hub.cachedir import HubCache
from supervisor.hub.contents import open_content
from supervisor.proxy.elsewhere import PEER

pytestmark = pytest.mark.anyio

NAME = "a" * 64
SIZE = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one content."""
    place = tmp_path / "models--a--b/blobs" / NAME
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(SIZE))
    return tmp_path


class Node:
    """One that asks, and takes nothing of the body."""

    def __init__(self, name: str) -> None:
        self.scope: dict[str, Any] = {"method": "GET", "path": f"/cluster/blobs/{NAME}", "headers": [], PEER: name}
        self.began = asyncio.Event()
        self._never = asyncio.Event()

    async def receive(self) -> Message:
        await self._never.wait()
        raise AssertionError("it never leaves")

    async def send(self, message: Message) -> None:
        self.began.set()
        if message["type"] == "http.response.body":
            await self._never.wait()


async def test_who_takes_nothing_loses_its_place(cache: Path) -> None:
    lending, node = Lending(HubCache(cache), most=1, patience=0.01), Node("one")
    await lending.answer(node.scope, node.receive, node.send)
    assert node.began.is_set()
    again = Node("two")
    await lending.answer(again.scope, again.receive, again.send)
    assert again.began.is_set()
    lending.close()


async def test_places_are_shared_between_nodes_and_given_back_when_an_answer_is_cancelled(cache: Path) -> None:
    lending = Lending(HubCache(cache), most=4)
    nodes = [Node(name) for name in ("one", "one", "two", "two")]
    sending = []
    for node in nodes:
        sending.append(asyncio.ensure_future(lending.answer(node.scope, node.receive, node.send)))
        await node.began.wait()
        for name in {"one", "three"} if len(sending) == 4 else ({"one"} if len(sending) == 2 else set()):
            more = Node(name)
            with pytest.raises(LendingFull):
                await lending.answer(more.scope, more.receive, more.send)
    lending.disown()
    await asyncio.gather(*sending, return_exceptions=True)
    assert all(one.cancelled() for one in sending)
    last = Node("one")
    task = asyncio.ensure_future(lending.answer(last.scope, last.receive, last.send))
    await last.began.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    lending.close()


async def test_a_file_that_becomes_shorter_ends_its_answer(cache: Path) -> None:
    lending, node = Lending(HubCache(cache)), Node("one")
    sent: list[Message] = []

    async def send(message: Message) -> None:
        if not sent:
            (cache / "models--a--b/blobs" / NAME).write_bytes(b"short")
        sent.append(message)

    await lending.answer(node.scope, node.receive, send)
    assert sent[0]["type"] == "http.response.start"
    assert (b"content-length", str(SIZE).encode()) in sent[0]["headers"]
    assert sum(len(one.get("body", b"")) for one in sent) < SIZE
    assert all(one["more_body"] for one in sent[1:]), "it is no whole answer: the connection is closed"
    lending.close()


async def test_without_a_cache_nothing_is_there(tmp_path: Path) -> None:
    lending, node = Lending(HubCache(tmp_path / "none")), Node("one")
    with pytest.raises(FileNotHere):
        await lending.answer(node.scope, node.receive, node.send)
    lending.close()


def test_only_a_hash_names_a_content(cache: Path) -> None:
    (cache / "models--a--b/blobs/plain").write_bytes(b"")
    for name in ("", "plain", NAME.upper(), NAME + "/", f"../blobs/{NAME}", NAME[:-1], NAME + "a"):
        assert open_content(cache, name) is None
