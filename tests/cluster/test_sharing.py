"""The shared configuration of one node, beside a store in memory: what it does with what it hears."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervisor.cluster.kept import Membership, Server, keep_config, kept_config
from supervisor.cluster.sharing import Sharing
from supervisor.cluster.store import Bucket, Entry, StoreUnavailable
from supervisor.config.shared import Shared
from supervisor.core.cluster import messages as m
from supervisor.errors import ClusterUnavailable, ConfigError, VersionChanged
from supervisor.service.versions import VersionSet
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Memory:
    """A store of one key, with its history. racing: what others write before the next update of this node."""

    entries: list[Entry] = field(default_factory=list)
    hearing: list[Callable[[Entry], None]] = field(default_factory=list)
    racing: list[bytes] = field(default_factory=list)
    away: bool = False

    async def ready(self) -> None:
        """Be there."""

    async def put(self, bucket: Bucket, key: str, value: bytes | None) -> None:
        self.entries.append(Entry(key, value, len(self.entries) + 1))
        for hear in self.hearing:
            hear(self.entries[-1])

    async def create(self, bucket: Bucket, key: str, value: bytes) -> Entry:
        self._check()
        await self._race()
        if not self.entries:
            await self.put(bucket, key, value)
        return self.entries[-1]

    async def update(self, bucket: Bucket, key: str, value: bytes | None, revision: int) -> int | None:
        self._check()
        await self._race()
        if self.entries[-1].revision != revision:
            return None
        await self.put(bucket, key, value)
        return self.entries[-1].revision

    async def history(self, bucket: Bucket, key: str) -> list[Entry]:
        self._check()
        return list(self.entries)

    async def watch(self, bucket: Bucket, hear: Callable[[Entry], None]) -> None:
        self.hearing.append(hear)
        for entry in self.entries[-1:]:
            hear(entry)

    async def publish(self, data: bytes, hear: Callable[[bytes], None] | None = None) -> None:
        """Tell nobody."""

    async def _race(self) -> None:
        if self.racing:
            await self.put("config", "shared", self.racing.pop(0))

    def _check(self) -> None:
        if self.away:
            raise StoreUnavailable("it is away")


@dataclass
class Configuration:
    """What a node has in force. refusing: why it takes nothing over now."""

    shared: Shared | None = None
    refusing: Exception | None = None
    taken: list[int] = field(default_factory=list)

    async def share(self, shared: Shared) -> None:
        await self.try_shared(shared)
        self.shared = shared
        self.taken.append(shared.number)

    async def try_shared(self, shared: Shared) -> None:
        if self.refusing is not None:
            raise self.refusing


@dataclass
class Stage:
    """A node: `told` counts what the others are told."""

    folder: Path
    store: Memory
    own: Configuration
    sharing: Sharing
    told: asyncio.Event

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that holds when the others are told something."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await self.told.wait()
                self.told.clear()


@contextlib.asynccontextmanager
async def stage(
    folder: Path, store: Memory | None = None, own: Configuration | None = None, again_s: float = PATIENCE
) -> AsyncIterator[Stage]:
    """A node that has begun to hear."""
    (folder / "cluster.json").write_text("{}")
    store, own, told = store or Memory(), own or Configuration(), asyncio.Event()
    kept = Membership(folder, "me", "1f", "127.0.0.1", 1, (Server("127.0.0.1", 2),))
    own.shared = None if (folder / "config.json").is_dir() else kept_config(folder)
    sharing = Sharing(kept, store, own, told.set, again_s)
    sharing.start()
    await sharing.begin()
    try:
        yield Stage(folder, store, own, sharing, told)
    finally:
        sharing.disown()


def config(number: int, text: str = "", node: str = "other") -> bytes:
    return m.bytes_of(m.Config(number, node, 1.0, text))


async def test_what_is_set_is_in_force_and_kept(tmp_path: Path) -> None:
    async with stage(tmp_path) as node:
        done = await node.sharing.set("defaults: {ttl: 5}", 0)
        assert (done.version, done.node, done.problem) == (1, "me", None)
        assert node.own.taken == [1]
        await node.until(lambda: (tmp_path / "config.json").exists())
    found = kept_config(tmp_path)
    assert found is not None
    assert found.loaded.settings.defaults.ttl == 5


async def test_numbers_go_on_where_the_store_has_begun_anew(tmp_path: Path) -> None:
    keep_config(tmp_path, m.Config(7, "other", 1.0, ""))
    async with stage(tmp_path) as node:
        assert (await node.sharing.show(None)).version == 7
        assert (await node.sharing.history()).versions == []
        with pytest.raises(VersionChanged, match="is at version 7 by now"):
            await node.sharing.set("", 0)
        assert (await node.sharing.set("", 7)).version == 8


async def test_a_number_that_another_node_has_made_up_is_not_the_last(tmp_path: Path) -> None:
    store = Memory([Entry("shared", config(4), 1), Entry("shared", config(m.MOST_VERSION), 2)])
    async with stage(tmp_path, store) as node:
        assert [(await node.sharing.set("", None)).version for _ in range(2)] == [5, 6]
        assert [one.version for one in (await node.sharing.history()).versions] == [6, 5, m.MOST_VERSION, 4]


async def test_who_comes_second_is_told_or_goes_on(tmp_path: Path) -> None:
    for expected in (0, 1, None):
        (tmp_path / "config.json").unlink(missing_ok=True)
        store = Memory(racing=[config(1)])
        if expected == 1:
            store = Memory([Entry("shared", config(1), 1)], racing=[config(2)])
        async with stage(tmp_path, store) as node:
            if expected is None:
                found: VersionSet = await node.sharing.set("", None)
                assert found.version == 2
                continue
            with pytest.raises(VersionChanged):
                await node.sharing.set("", expected)


async def test_the_present_version_is_written_over_and_no_other(tmp_path: Path) -> None:
    store = Memory(racing=[config(number) for number in range(1, 9)])
    async with stage(tmp_path, store) as node:
        with pytest.raises(VersionChanged, match="changes all the time"):
            await node.sharing.set("", None)


async def test_what_could_not_be_taken_over_is_tried_again(tmp_path: Path) -> None:
    own = Configuration(refusing=ConfigError("the engine lacks it"))
    async with stage(tmp_path, own=own, again_s=0.01) as node:
        await node.store.put("config", "shared", config(3))
        await node.until(lambda: node.sharing.problem == "version 3: the engine lacks it")
        assert node.sharing.state == (0, "version 3: the engine lacks it")
        assert not (tmp_path / "config.json").exists()
        own.refusing = None
        await node.until(lambda: node.sharing.state == (3, ""))
        assert own.taken == [3]


async def test_a_change_of_the_node_s_own_file_has_it_tried_again(tmp_path: Path) -> None:
    own = Configuration(refusing=ConfigError("the name is taken"))
    async with stage(tmp_path, own=own) as node:
        node.sharing.again()  # there is nothing to be tried
        await node.store.put("config", "shared", config(3))
        await node.until(lambda: node.sharing.problem != "")
        own.refusing = None
        node.sharing.again()
        await node.until(lambda: node.sharing.state == (3, ""))


async def test_a_fault_of_the_program_ends_nothing(tmp_path: Path) -> None:
    own = Configuration(refusing=ZeroDivisionError())
    async with stage(tmp_path, own=own) as node:
        await node.store.put("config", "shared", config(3))
        await node.until(lambda: "a fault of the program" in node.sharing.problem)
        own.refusing = None
        await node.store.put("config", "shared", config(4))
        await node.until(lambda: node.sharing.state == (4, ""))


async def test_what_cannot_be_kept_is_in_force_and_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    async with stage(tmp_path, again_s=0.01) as node:
        await node.store.put("config", "shared", config(2))
        await node.until(lambda: "cannot be kept" in node.sharing.problem)
        assert node.sharing.number == 2
        (tmp_path / "config.json").rmdir()
        await node.until(lambda: node.sharing.problem == "")
        assert node.own.taken == [2]  # once
    found = kept_config(tmp_path)
    assert found is not None
    assert found.number == 2


async def test_what_is_heard_again_changes_nothing(tmp_path: Path) -> None:
    store = Memory([Entry("shared", config(1), 1), Entry("shared", config(2), 2)])
    async with stage(tmp_path, store) as node:
        await node.until(lambda: node.sharing.number == 2)
        store.hearing[0](store.entries[0])  # late
        store.hearing[0](Entry("other", config(9), 9))
        store.hearing[0](Entry("shared", None, 10))
        await node.sharing.begin()  # after a break
        done = await node.sharing.set("", 2)
        assert done.version == 3
        assert node.own.taken == [2, 3]


async def test_one_of_another_program_is_no_version_to_go_back_from(tmp_path: Path) -> None:
    async with stage(tmp_path) as node:
        await node.sharing.set("defaults: {ttl: 5}", 0)
        await node.store.put("config", "shared", b'{"protocol": 99}')
        await node.until(lambda: "cannot be read" in node.sharing.problem)
        assert node.sharing.number == 1
        assert (await node.sharing.show(None)).version == 1
        assert [one.version for one in (await node.sharing.history()).versions] == [1]
        node.sharing.again()
        with pytest.raises(VersionChanged, match="cannot be read here"):
            await node.sharing.set("", 1)
        assert (await node.sharing.revert(1, None)).version == 2
        assert node.sharing.state == (2, "")


async def test_without_the_store_there_is_what_is_in_force(tmp_path: Path) -> None:
    keep_config(tmp_path, m.Config(7, "other", 1.0, "defaults: {ttl: 5}"))
    async with stage(tmp_path) as node:
        node.store.away = True
        assert (await node.sharing.show(None)).text == "defaults: {ttl: 5}"
        for asked in (
            node.sharing.history(),
            node.sharing.set("", 7),
            node.sharing.show(7),
            node.sharing.revert(7, None),
        ):
            with pytest.raises(ClusterUnavailable):
                await asked
        with pytest.raises(ConfigError):
            await node.sharing.set("server: {port: 1}", 7)
