"""Files from nodes that do it right and that do it wrong: the real process, mutual TLS, and the hub after them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from supervisor.cluster.borrower import Borrower, Job, Wanted
from supervisor.cluster.borrowing import Borrowing
from supervisor.cluster.joining import begin
from supervisor.cluster.kept import Membership, Server
from supervisor.cluster.lenders import Lender
from supervisor.cluster.peers import Peers
from supervisor.core.cluster.directory import Directory
from supervisor.core.cluster.messages import Load
from supervisor.errors import DiskFull
from supervisor.hub.models import HubModels
from supervisor.hub.partials import partial_of
from tests.cluster.fake_node import CUT, FakeNode, serving
from tests.hub.conftest import Client
from tests.support.hub import LocalHub, local_hub
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio

DATA = os.urandom(3 << 20)
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as server:
        server.add("a/b", {"m-Q4_0.gguf": DATA})
        yield server


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Membership:
    """What this node keeps of its cluster."""
    return begin(tmp_path_factory.mktemp("cluster"), "me", ("127.0.0.1", 1), [Server("127.0.0.1", 2)])


class Stage:
    """The hub, other nodes, and downloads into an empty cache."""

    def __init__(self, hub: LocalHub, kept: Membership, home: Path) -> None:
        self.hub = hub
        self.client = Client(hub, home)
        self.nodes: list[FakeNode] = []
        self.heard: list[str | None] = []
        self.patience = self.asking = PATIENCE
        self._kept = kept
        self._stack = contextlib.ExitStack()

    @property
    def blobs(self) -> Path:
        return self.client.home / "hf/hub/models--a--b/blobs"

    @property
    def partial(self) -> Path:
        return partial_of(self.blobs, SHA)

    def node(self, fault: str = "", **more: Any) -> FakeNode:
        """One more node, which has the file."""
        node = FakeNode(f"node{len(self.nodes)}", {SHA: DATA}, fault, **more)
        self.patience = 1.0 if fault in {"slow", "dribble"} else self.patience
        self.asking = 1.0 if fault == "mute" else self.asking
        self.nodes.append(self._stack.enter_context(serving(node, self._kept)))
        return node

    def models(self) -> HubModels:
        """The hub's models, which are asked of the nodes first."""
        models = self.client.models()
        env = {**models.access.env, "HF_TOKEN": "hf_secret"}
        directory, clock = Directory("me"), (lambda: 0.0)
        for one in self.nodes:
            directory.put(one.told())
            directory.hear(Load(one.name, 1, 0.0, 0), 0.0)
        peers, cache, waits = Peers(self._kept.dialling()), models.cache.folder, (self.patience, self.asking)
        models.ask_first(Borrowing(self._kept, directory, clock, peers, cache, env, None, *waits))
        return models

    async def fetch(self) -> Path:
        """Have the file; its place."""
        models = self.models()
        chosen = self.client.chosen("a/b:Q4_0", models)

        def watch(progress: Any) -> None:
            models.downloads.on_change = lambda: self.heard.append(progress.source)

        return (await models.fetch(chosen, vision=True, watch=watch)).path

    @property
    def sent(self) -> int:
        """Bytes that the hub has sent of the file."""
        return self.hub.sent_bytes(SHA)

    def close(self) -> None:
        self._stack.close()
        self.client.close()


@pytest.fixture
def stage(hub: LocalHub, kept: Membership, tmp_path: Path) -> Iterator[Stage]:
    found = Stage(hub, kept, tmp_path)
    yield found
    found.close()


def is_whole(stage: Stage, path: Path) -> bool:
    """Whether the file is right, in the place that the hub's client gives it, and nothing is left over."""
    assert path.is_symlink()
    assert os.readlink(path) == os.path.relpath(stage.blobs / SHA, path.parent)
    return path.read_bytes() == DATA and list(stage.blobs.iterdir()) == [stage.blobs / SHA]


async def test_a_file_comes_from_a_node_and_the_hub_sends_nothing(stage: Stage) -> None:
    node = stage.node()
    assert is_whole(stage, await stage.fetch())
    assert stage.sent == 0
    assert not stage.hub.requests("/resolve/"), "the hub was asked for its listing alone"
    assert node.asked == [("HEAD", None), ("GET", f"bytes=0-{len(DATA) - 1}")]
    assert set(stage.heard) <= {None, f"node {node.name}"}
    assert f"node {node.name}" in stage.heard
    assert (stage.client.home / "hf/hub/models--a--b/refs/main").exists()


async def test_without_a_node_that_has_it_the_hub_sends_it(stage: Stage) -> None:
    stage.node().files.clear()
    assert is_whole(stage, await stage.fetch())
    assert stage.sent == len(DATA)
    assert stage.heard[-1] == "hub"


FAULTS = [
    *("altered", "cut", "short", "long", "endless", "elsewhere", "larger", "unnamed", "whole", "moved", "broken"),
    *("busy", "slow", "dribble", "headers", "noise", "size", "other", "mute"),
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_after_a_node_that_does_it_wrong_comes_the_next(stage: Stage, fault: str) -> None:
    wrong = stage.node(fault)
    right = stage.node(after=wrong.used)
    assert is_whole(stage, await stage.fetch())
    assert stage.sent == 0
    assert right.ranges or fault in {"long", "endless"}, "of these all has come before it was too much"
    if fault in {"cut", "short"}:
        assert right.ranges == [f"bytes={CUT}-{len(DATA) - 1}"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_after_nodes_that_do_it_wrong_comes_the_hub(stage: Stage, fault: str) -> None:
    stage.node(fault)
    assert is_whole(stage, await stage.fetch())
    came = {"cut": CUT, "short": CUT, "slow": 10}.get(fault, 0)
    if fault not in {"long", "endless"}:  # of these more or less has come before it was too much
        assert stage.sent == len(DATA) - came
    if came:
        assert [one.range for one in stage.hub.requests(SHA, "GET")] == [f"bytes={came}-"]


def models_in(folder: Path) -> list[Path]:
    """All models below a folder."""
    return list(folder.rglob("*.gguf"))


async def test_a_large_file_comes_in_several_requests(stage: Stage, kept: Membership, tmp_path: Path) -> None:
    node, said = stage.node(), list[dict[str, Any]]()
    job = Job(
        cache=str(tmp_path / "cache"),
        authority=str(kept.authority),
        chain=str(kept.chain),
        key=str(kept.key),
        nodes=(Lender(node.name, "127.0.0.1", node.port, node.serial),),
        repo="a/b",
        commit="0" * 40,
        files=(Wanted("x/m.gguf", len(DATA), SHA), Wanted("../out.gguf", len(DATA), SHA), Wanted("n.gguf", 1, "../x")),
        part=1 << 20,
    )
    await Borrower(job, said.append).work()
    place = tmp_path / "cache/models--a--b/snapshots" / ("0" * 40) / "x/m.gguf"
    assert place.read_bytes() == DATA
    assert models_in(tmp_path) == [place], "names that lead elsewhere are none"
    assert node.ranges == [f"bytes={begin << 20}-{(begin + 1 << 20) - 1}" for begin in range(3)]
    assert said[-1] == {"event": "done", "path": "x/m.gguf"}
    assert {"event": "progress", "path": "x/m.gguf", "done": len(DATA), "total": len(DATA)} in said


async def test_a_node_that_has_gone_is_none(stage: Stage) -> None:
    stage.node()
    stage.nodes.append(FakeNode("gone", {}, port=9))
    assert is_whole(stage, await stage.fetch())
    assert stage.sent == 0


async def test_what_has_begun_to_arrive_is_gone_on_with(stage: Stage) -> None:
    node = stage.node()
    stage.blobs.mkdir(parents=True)
    stage.partial.write_bytes(DATA[:700_000])
    assert is_whole(stage, await stage.fetch())
    assert node.ranges == [f"bytes=700000-{len(DATA) - 1}"]
    assert stage.sent == 0


@pytest.mark.parametrize("begun", [bytes(700_000), bytes(len(DATA)), bytes(len(DATA) + 1)])
async def test_a_beginning_that_is_none_costs_no_more_than_another_download(stage: Stage, begun: bytes) -> None:
    stage.node()
    stage.blobs.mkdir(parents=True)
    stage.partial.write_bytes(begun)
    assert is_whole(stage, await stage.fetch())


async def test_what_was_right_before_a_node_that_lies_is_kept(stage: Stage) -> None:
    stage.node("altered")
    stage.blobs.mkdir(parents=True)
    stage.partial.write_bytes(DATA[:700_000])
    assert is_whole(stage, await stage.fetch())
    assert [one.range for one in stage.hub.requests(SHA, "GET")] == ["bytes=700000-"]


async def test_of_a_node_that_lies_and_dies_nothing_stays(stage: Stage) -> None:
    """The hub goes on where it ended, and finds that what it gave does not belong to the file."""
    node = stage.node("cut")
    node.files[SHA] = bytes(CUT) + DATA[CUT:]
    stage.blobs.mkdir(parents=True)
    stage.partial.write_bytes(DATA[:700_000])
    assert is_whole(stage, await stage.fetch())
    ranges = [one.range for one in stage.hub.requests(SHA, "GET")]
    assert ranges == [f"bytes={700_000 + CUT}-", "bytes=700000-"]


async def test_a_link_in_place_of_what_arrives_is_not_written_through(stage: Stage, tmp_path: Path) -> None:
    stage.node()
    stage.blobs.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    stage.partial.symlink_to(other)
    with contextlib.suppress(Exception):
        await stage.fetch()
    assert other.read_bytes() == b"mine"


async def test_a_content_that_is_there_under_another_name_is_linked(stage: Stage) -> None:
    node = stage.node()
    stage.blobs.mkdir(parents=True)
    (stage.blobs / SHA).write_bytes(DATA)
    assert is_whole(stage, await stage.fetch())
    assert node.asked == []
    assert stage.sent == 0


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_FSIZE"), reason="limits of other processes are Linux's")
async def test_a_disk_that_runs_full_is_said_and_what_came_stays(stage: Stage) -> None:
    stage.node()
    lock = stage.client.home / "hf/hub/.locks/models--a--b" / f"{SHA}.lock"
    lock.parent.mkdir(parents=True)
    with FileLock(lock) as held:
        work = asyncio.ensure_future(stage.fetch())
        async with asyncio.timeout(PATIENCE):
            while not (found := borrowers()):  # noqa: ASYNC110 - processes tell nobody
                await asyncio.sleep(0.01)
        found[0].rlimit(psutil.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        held.release()
        with pytest.raises(DiskFull, match="ran full"):
            await work
    assert stage.partial.read_bytes() == DATA[: 1 << 20]
    assert not stage.hub.requests(SHA, "GET")
    assert is_whole(stage, await stage.fetch())
    assert stage.sent == 0


def borrowers() -> list[psutil.Process]:
    """The processes that get files from nodes."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("cluster.borrower" in word for word in child.cmdline()):
                found.append(child)
    return found
