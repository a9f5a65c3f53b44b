"""A node's part in its cluster: it tells the others what it does, hears them, and keeps its claims.

Whoever holds the claim of a model loads it; nobody else does. A claim ends when its node does not renew it. A node that
finds that its claim has become another's, as after a time without a connection, lets the model go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from supervisor.cluster.store import Entry, Store, StoreUnavailable
from supervisor.cluster.told import Told
from supervisor.cluster.waiting import lasting, woken
from supervisor.core.cluster import messages as m
from supervisor.core.cluster.directory import RENEW_S, TELL_S, Claimed, Directory
from supervisor.pool.changes import Changes

_log = structlog.get_logger()

_AT_ONCE_S: Final = 0.5  # the shortest time between two loads that are told
_AGAIN_S: Final = 1.0
_MOST_CAUSES: Final = 16  # of not being ready, each of which is logged once
_NEWCOMER_S: Final = 0.02  # for each node there is: all that come meanwhile get one answer, as everybody hears it
_CLAIMS_S: Final = 0.1  # the shortest time between two looks at the claims
_UNUSED_S: Final = 15.0  # a claim that no load follows is given up after so long
_LATE_S: Final = 2.0  # and one that has come when its load was over already, as it may have been


@dataclass(slots=True)
class _Mine:
    """A claim of this node. until: how long a load may be awaited, which then has followed: 0."""

    replica: int
    revision: int
    until: float
    number: int = 0


class Member:
    """This node.

    Args:
        directory: what it learns goes there.
        store: the cluster's.
        told: what it tells.
        clock: seconds of a monotonic clock.
        members: is told whenever the members have changed, with the name of the one that is none any more, if there is.
        begins: is called whenever it has begun to hear the others.

    Attributes:
        changes: is told whenever the directory changes.
        unready: why the store cannot be used, though it is connected; empty: it can.
    """

    def __init__(
        self,
        directory: Directory,
        store: Store,
        told: Told,
        clock: Callable[[], float],
        members: Callable[[str | None], None],
        begins: Callable[[], Awaitable[None]],
    ) -> None:
        self.directory = directory
        self.changes = Changes()
        self.unready = ""
        self._store = store
        self._told = told
        self._pool = told.pool
        self._members = members
        self._begins = begins
        self._clock = clock
        self._mine: dict[str, _Mine] = {}
        self._known = False  # all members have been told
        self._beginning = False  # what was there before is being told
        self._asked = False  # another node wants to know what this one does
        self._answering: asyncio.TimerHandle | None = None
        self._loaded: dict[str, float] = {}  # when models were loaded last
        self._admitted: dict[str, m.Node] = {}  # members that the store does not know yet
        self._again = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Take part, once the store is connected."""
        for work in (self._take_part, self._tell, self._keep_claims):
            self._tasks.add(asyncio.ensure_future(lasting(work)))

    def disown(self) -> None:
        """Say and hear nothing any more, and leave everything as it is."""
        for task in self._tasks:
            task.cancel()
        if self._answering is not None:
            self._answering.cancel()

    async def leave(self) -> None:
        """Give up all claims."""
        self.disown()
        try:
            for model, mine in tuple(self._mine.items()):
                await self._store.update("claims", m.key_of(model, mine.replica), None, mine.revision)
        except StoreUnavailable as error:
            _log.warning("cluster_left_unsaid", reason=str(error))

    def admit(self, node: m.Node) -> tuple[m.Node, ...]:
        """Make a host a member; the store is told as soon as it can be. Return all members, of which this is one."""
        self.directory.put(self._told.node())  # it may not have begun, for want of other servers
        self.directory.put(node)
        self._admitted[node.name] = node
        self._members(None)
        self._begin_work(self._vouch(node))
        return tuple(seen.node for seen in self.directory)

    def _begin_work(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(task := asyncio.ensure_future(work))
        task.add_done_callback(self._tasks.discard)

    async def _vouch(self, node: m.Node) -> None:
        while self._admitted.get(node.name) == node:
            try:
                entry = await self._store.create("nodes", node.name, m.bytes_of(node))
                if entry.value is not None and m.read(entry.value, m.Node).serial != node.serial:
                    await self._store.put("nodes", node.name, m.bytes_of(node))
            except StoreUnavailable as error:
                _log.debug("node_not_told", node=node.name, reason=str(error))
                await asyncio.sleep(_AGAIN_S)
            else:
                self._admitted.pop(node.name, None)

    async def remove(self, name: str) -> None:
        """Take a node out that is no more. Raises StoreUnavailable."""
        await self._store.put("nodes", name, None)

    def connected(self, *, now: bool) -> None:
        """Note that the store has come, or has gone."""
        if now:
            self._again.set()
        elif self.directory.connected:
            _log.warning("cluster_disconnected")
            self.directory.disconnect()
            self.changes.tell()

    async def claim(self, model: str, node: str, replica: int = 0, over: Claimed | None = None) -> str:
        """Claim a model for a node; return the node that has it then, which may be another. Raises StoreUnavailable.

        replica: which copy of the model. over: the claim of a node that is no more, which this one takes the place of.
        """
        key, claim = m.key_of(model, replica), m.Claim(model, node, replica=replica)
        if over is not None:
            revision = await self._store.update("claims", key, m.bytes_of(claim), over.revision)
            if revision is not None:
                self._claimed(Entry(key, m.bytes_of(claim), revision))
                return node
        entry = await self._store.create("claims", key, m.bytes_of(claim))
        self._claimed(entry)
        try:
            return node if entry.value is None else m.read(entry.value, m.Claim).node
        except m.NotUnderstood as error:
            raise StoreUnavailable(f"a claim is there that is not understood: {error}") from None

    def loads(self, model: str) -> None:
        """Note that a model is being loaded here, however short it then stays."""
        self._loaded[model] = self._clock()
        if (mine := self._mine.get(model)) is not None:
            mine.until = 0.0

    def tell(self) -> None:
        """Tell the others of this node soon, as something about it has changed."""
        self._asked = True
        self._pool.changed()

    # what is heard

    async def _take_part(self) -> None:
        said: set[str] = set()
        while True:
            self._again.clear()
            try:
                await self._begin()
            except StoreUnavailable as error:
                self.unready = str(error)
                if self.unready not in said and len(said) < _MOST_CAUSES:
                    said.add(self.unready)
                    _log.warning("cluster_not_ready", reason=self.unready)
                self.directory.disconnect()
                await asyncio.sleep(_AGAIN_S)
                continue
            self.unready = ""
            said.clear()
            _log.info("cluster_connected", nodes=[seen.node.name for seen in self.directory])
            self.changes.tell()
            await self._again.wait()

    async def _begin(self) -> None:
        """Hear everything from now on, and be a member. What was kept of others and is no more is forgotten."""
        await self._store.ready()
        named: set[str] = set()

        def known(entry: Entry) -> None:
            named.add(entry.key)
            self._node(entry)

        node = self._told.node()
        self.directory.put(node)
        await self._store.put("nodes", node.name, m.bytes_of(node))
        self._known = False
        await self._store.watch("nodes", known)
        for seen in self.directory:
            if seen.node.name not in named | {node.name} | self._admitted.keys():
                self.directory.remove(seen.node.name)
        self._known = True
        self._members(None)
        self.directory.forget_claims()  # the store may have begun anew, and its revisions with it
        for mine in self._mine.values():
            mine.revision = 0
        self._beginning = True
        await self._store.watch("claims", self._claimed)
        self._beginning = False
        load = msgspec.structs.replace(self._told.load(), new=True)
        self.directory.connect(self._clock())  # before anything is heard
        await self._store.publish(m.bytes_of(load), self._heard)
        await self._begins()

    def _node(self, entry: Entry) -> None:
        if entry.value is None:
            if entry.key == self.directory.me:
                self._removed()
            elif entry.key not in self._admitted:  # else it is of another node that had the name
                self.directory.remove(entry.key, for_good=True)
                self._members(entry.key)
        else:
            try:
                node = m.read(entry.value, m.Node)
            except m.NotUnderstood as error:
                _log.warning("node_not_understood", node=entry.key, reason=str(error))
                return
            if node.name == entry.key != self.directory.me and not self.directory.put(node) and self._known:
                self._begin_work(self._unwrite(entry))
        if self._known:
            self._members(None)
        self.changes.tell()

    async def _unwrite(self, entry: Entry) -> None:
        """Write over what a node has written that was removed, in the moment before the servers shut it out."""
        _log.warning("node_is_removed", node=entry.key)
        seen = self.directory.node(entry.key)  # of the same name
        value = None if seen is None else m.bytes_of(seen.node)
        with contextlib.suppress(StoreUnavailable):
            await self._store.update("nodes", entry.key, value, entry.revision)

    def _removed(self) -> None:
        """Be alone from now on, as another node has said so."""
        _log.error("cluster_removed", effect="this node is alone until it is restarted", help="supervisor cluster join")
        self.directory.disconnect()
        self.disown()

    def _claimed(self, entry: Entry) -> None:
        if entry.value is None:
            self.directory.unclaimed(entry.key, entry.revision)
            self.changes.tell()
            return
        try:
            claim = m.read(entry.value, m.Claim)
        except m.NotUnderstood as error:
            _log.warning("claim_not_understood", reason=str(error))
            return
        self.directory.claimed(claim, entry.revision, self._clock())
        mine = self._mine.get(claim.model)
        if claim.node == self.directory.me:
            self._gained(claim, entry.revision, mine)
        elif mine is not None and mine.replica == claim.replica and entry.revision > mine.revision:
            self._lose(claim.model, claim.node)
        self.changes.tell()

    def _gained(self, claim: m.Claim, revision: int, mine: _Mine | None) -> None:
        """Note a claim of this node. Of two for the same model the first one counts; the other ends by itself."""
        if mine is None:
            now, loaded = self._clock(), self._loaded.get(claim.model)
            over = loaded is not None and now - loaded < _LATE_S  # faster than another node's claim came here
            over = over or self._beginning  # it may be from before this daemon was started
            until = now + (_LATE_S if over else _UNUSED_S)
            self._mine[claim.model] = _Mine(claim.replica, revision, until)
        elif mine.replica == claim.replica and revision > mine.revision:
            mine.revision = revision

    def _heard(self, data: bytes) -> None:
        try:
            load = m.read(data, m.Load)
        except m.NotUnderstood as error:
            _log.debug("load_not_understood", reason=str(error))
            return
        if load.new and load.node != self.directory.me:
            self.tell()
        if self.directory.hear(load, self._clock()):
            self.changes.tell()

    # what is told

    def _answer(self) -> None:
        self._answering = None
        self.tell()

    async def _tell(self) -> None:
        """Tell what this node does when it changes, not too often, and now and then in any case."""
        last: m.Load | None = None
        with self._pool.watch() as changed:
            while True:
                changed.clear()
                load = self._told.load()
                if self._asked or last is None or not load.says_the_same_as(last):
                    self._asked = False
                    await self._say(load)
                    last = load
                    await asyncio.sleep(_AT_ONCE_S)
                if not await woken(changed, TELL_S):
                    last = None

    async def _say(self, load: m.Load) -> None:
        node, known = self._told.node(), self.directory.node(load.node)
        try:
            if known is not None and known.node != node:
                await self._store.put("nodes", node.name, m.bytes_of(node))
                self.directory.put(node)
                self._members(None)
            await self._store.publish(m.bytes_of(load))
        except (StoreUnavailable, ValueError) as error:
            _log.debug("load_not_told", reason=str(error))

    # claims

    async def _keep_claims(self) -> None:
        """Claim what has been loaded by command, give up what is not loaded any more, and renew the rest in time."""
        renew_at = 0.0
        with self._pool.watch() as changed:
            while True:
                changed.clear()
                now = self._clock()
                if self.directory.connected:
                    renews, again = now >= renew_at, RENEW_S
                    try:
                        await self._look_after(now, renews=renews)
                    except StoreUnavailable as error:
                        _log.debug("claims_not_renewed", reason=str(error))
                        renews, again = True, _AGAIN_S
                    if renews:
                        renew_at = now + again
                        self.directory.end_claims(now)
                await asyncio.sleep(_CLAIMS_S)
                await woken(changed, max(0.0, renew_at - self._clock()))

    async def _look_after(self, now: float, *, renews: bool) -> None:
        for model in sorted({one.model for one in self._pool.residents()} - self._mine.keys()):
            replica = self.directory.free_replica(model, now)
            if self._told.running(model) is not None and replica is not None:
                await self.claim(model, self.directory.me, replica)
        for model, mine in tuple(self._mine.items()):
            runs = self._told.running(model) is not None
            mine.until = 0.0 if runs else mine.until
            if not runs and now > mine.until:
                await self._give_up(model, mine)
            elif renews:
                await self._renewed(model, mine)

    async def _give_up(self, model: str, mine: _Mine) -> None:
        self._mine.pop(model, None)
        await self._store.update("claims", m.key_of(model, mine.replica), None, mine.revision)

    async def _renewed(self, model: str, mine: _Mine) -> None:
        """Renew a claim. One that has ended is got again if nobody else has it."""
        mine.number += 1
        key, value = m.key_of(model, mine.replica), m.bytes_of(self._claim(model, mine))
        revision = await self._store.update("claims", key, value, mine.revision)
        if revision is None:
            self._claimed(await self._store.create("claims", key, value))
        else:
            self._claimed(Entry(key, value, revision))

    def _claim(self, model: str, mine: _Mine) -> m.Claim:
        return m.Claim(model, self.directory.me, mine.number, mine.replica)

    def _lose(self, model: str, node: str) -> None:
        """Let a model go that another node has the right to load."""
        del self._mine[model]
        if self._told.running(model) is not None:
            _log.warning("claim_lost", model=model, node=node, effect="it is unloaded here, after its requests")
            self._pool.ask_unload(model, serves_waiting=True)
