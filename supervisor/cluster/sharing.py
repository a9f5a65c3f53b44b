"""The configuration that the nodes share: heard from the store, checked here, taken over, kept for a later start.

A version that cannot be taken over changes nothing here. It is tried again now and then, because what is in its way
may go: an older llama-server, a name that somebody gave a model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from supervisor.cluster.kept import Membership, keep_config
from supervisor.cluster.store import Entry, Store, StoreUnavailable
from supervisor.config.shared import load_shared, shared_of
from supervisor.core.cluster import messages as m
from supervisor.core.cluster.natsconfig import SHARED
from supervisor.core.text.plaintext import one_line
from supervisor.errors import ClusterUnavailable, SupervisorError, VersionChanged, VersionNotFound
from supervisor.pool.changes import Changes
from supervisor.service.versions import Taking, Version, VersionInfo, VersionList, VersionSet

_log = structlog.get_logger()

_NAME: Final = "cluster config"  # of a text that is no version yet
_AGAIN_S: Final = 60.0
_WAIT_S: Final = 10.0  # for this node to take over what was set here
_ATTEMPTS: Final = 4
_RETRY_S: Final = 5.0


class Sharing:
    """The cluster's configuration as this node has it.

    Args:
        kept: its membership. store: the cluster's. taking: takes versions over. tell: tells the others of it.
        again_s: seconds after which a version is tried again that could not be taken over.

    Attributes:
        problem: why it has not taken the newest version over; empty: it has.
    """

    def __init__(
        self,
        kept: Membership,
        store: Store,
        taking: Taking,
        tell: Callable[[], None],
        again_s: float = _AGAIN_S,
    ) -> None:
        self.problem = ""
        self._kept = kept
        self._store = store
        self._taking = taking
        self._tell = tell
        self._again_s = again_s
        self._newest: m.Config | None = None  # None, too, where it cannot be read
        self._stored = self._in_force  # for the next start
        self._revision = 0
        self._tried: m.Config | None = None
        self._heard_one = asyncio.Event()
        self._changes = Changes()
        self._task: asyncio.Task[None] | None = None

    @property
    def _in_force(self) -> m.Config | None:
        return None if self._taking.shared is None else self._taking.shared.config

    @property
    def number(self) -> int:
        """Number of the version in force; 0: there is none."""
        return 0 if self._in_force is None else self._in_force.number

    @property
    def state(self) -> tuple[int, str]:
        """Number of the version in force, and why there is no newer one."""
        return self.number, self.problem

    # its life

    def start(self) -> None:
        """Take over what is heard."""
        self._task = asyncio.ensure_future(self._follow())

    def disown(self) -> None:
        """Take over nothing more."""
        if self._task is not None:
            self._task.cancel()

    def again(self) -> None:
        """Try again what could not be taken over: something has changed here."""
        if self.problem:
            self._heard_one.set()

    async def begin(self) -> None:
        """Hear all versions from now on. Raises StoreUnavailable."""
        self._revision = 0  # the store may have begun anew
        await self._store.watch("config", self._heard)

    def _heard(self, entry: Entry) -> None:
        if entry.key != SHARED or entry.value is None or entry.revision <= self._revision:
            return
        self._revision = entry.revision
        try:
            self._newest = m.read(entry.value, m.Config)
        except m.NotUnderstood as error:
            self._newest = None
            self._fail(f"the newest version cannot be read ({error}): update llama-supervisor here")
            self._tell()
            return
        self._heard_one.set()

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._again_s if self.problem else None):
                    await self._heard_one.wait()
            self._heard_one.clear()
            if self._newest is not None:
                await self._take(self._newest)

    async def _take(self, config: m.Config) -> None:
        try:
            if config != self._in_force:
                await self._taking.share(await asyncio.to_thread(shared_of, config))
                _log.info("cluster_config_taken", version=config.number, node=config.node)
            self._fail("")
            if config != self._stored:
                await asyncio.to_thread(keep_config, self._kept.folder, config)
                self._stored = config
        except SupervisorError as error:
            name = f"version {config.number}:"  # a fault with its place begins with it
            self._fail(error.message if error.message.startswith(name) else f"{name} {error.message}")
        except OSError as error:
            self._fail(f"version {config.number} is in force, and cannot be kept for the next start: {error}")
        except Exception:  # noqa: BLE001 - a bug that a text brings out, which is logged
            _log.exception("cluster_config_not_read")
            self._fail(f"version {config.number}: a fault of the program; the log has it")
        self._tried = config
        self._changes.tell()
        self._tell()

    def _fail(self, problem: str) -> None:
        """Note why the newest version is not in force, or that it is."""
        problem = one_line(problem)[: m.MOST_PROBLEM]
        if problem and problem != self.problem:
            _log.error("cluster_config_refused", reason=problem, in_force=self.number)
        self.problem = problem

    # what is asked

    async def show(self, number: int | None) -> Version:
        """See `Versions`."""
        if number is None:
            return _with_text(self._newest or self._in_force)
        return _with_text(await self._version(number))

    async def history(self) -> VersionList:
        """See `Versions`."""
        return VersionList([_info(config) for config in reversed(_readable(await self._versions()))])

    async def check(self, text: str) -> None:
        """See `Versions`."""
        await asyncio.to_thread(load_shared, text, _NAME)
        await self._checked(self._next(text, self.number))

    async def set(self, text: str, expected: int | None) -> VersionSet:
        """See `Versions`."""
        await asyncio.to_thread(load_shared, text, _NAME)
        for _ in range(_ATTEMPTS):
            versions = await self._versions()
            newest = versions[-1] if versions else _Stored(self._in_force, None)
            if expected is not None:
                newest.check_expected(expected)
            known = [*_readable(versions), *filter(None, [self._in_force])]
            config = self._next(text, _last({one.number for one in known}))
            await self._checked(config)
            if await self._written(config, newest.revision):
                return await self._over(config)
        raise VersionChanged("The cluster's configuration changes all the time; try again.")

    async def revert(self, number: int, expected: int | None) -> VersionSet:
        """See `Versions`."""
        return await self.set((await self._version(number)).text, expected)

    def _next(self, text: str, before: int) -> m.Config:
        return m.Config(before + 1, self._kept.name, time.time(), text)

    async def _checked(self, config: m.Config) -> None:
        await self._taking.try_shared(await asyncio.to_thread(shared_of, config))

    async def _written(self, config: m.Config, revision: int | None) -> bool:
        """Write a version over the one at this revision; return whether nobody else was first."""
        value = m.bytes_of(config)
        try:
            if revision is not None:
                return await self._store.update("config", SHARED, value, revision) is not None
            return (await self._store.create("config", SHARED, value)).value == value
        except StoreUnavailable as error:
            raise _untold(error) from None

    async def _over(self, config: m.Config) -> VersionSet:
        """Wait until this node has tried to take it over."""
        with self._changes.watch() as changed, suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                while self._tried is None or self._tried.number < config.number:
                    await changed.wait()
                    changed.clear()
        problem = self.problem if self.number < config.number else ""
        return VersionSet(config.number, config.node, config.at, len(config.text.encode()), problem or None)

    async def _version(self, number: int) -> m.Config:
        kept = _readable(await self._versions())
        found = next((config for config in kept if config.number == number), None)
        if found is None:
            known = f"{kept[0].number} to {kept[-1].number} are kept" if kept else "none was set yet"
            raise VersionNotFound(f"The cluster's configuration has no version {number}: {known}.")
        return found

    async def _versions(self) -> list[_Stored]:
        """Return what is kept, the oldest first."""
        try:
            entries = await self._store.history("config", SHARED)
        except StoreUnavailable as error:
            raise _untold(error) from None
        return [_Stored(_read(one.value or b""), one.revision) for one in entries]


@dataclass(frozen=True)
class _Stored:
    """A version as the store has it. config: None where it cannot be read. revision: None where it has none."""

    config: m.Config | None
    revision: int | None

    def check_expected(self, expected: int) -> None:
        """Raise VersionChanged where this is not the version that is expected."""
        number = 0 if self.config is None else self.config.number
        unreadable = self.config is None and self.revision is not None
        if expected == number and not unreadable:
            return
        there = "has no version yet"
        if unreadable:
            there = "is at one by now that cannot be read here: update llama-supervisor on this node"
        elif self.config is not None:
            there = f"is at version {number} by now, set at node {self.config.node}"
        raise VersionChanged(
            f"The cluster's configuration {there}. The change was made for version {expected}. Look at what is there "
            "(`supervisor cluster config show`), make your change to it, and set that."
        )


def _read(value: bytes) -> m.Config | None:
    try:
        return m.read(value, m.Config)
    except m.NotUnderstood:
        return None


def _readable(versions: Iterable[_Stored]) -> list[m.Config]:
    return [one.config for one in versions if one.config is not None]


def _last(numbers: Collection[int]) -> int:
    """Return the number of the last version. Behind the highest that there is, they begin anew, as any node may be
    the one that has written it.
    """
    last = max(numbers, default=0)
    return last if last < m.MOST_VERSION else max((one for one in numbers if one <= m.MOST_VERSION // 2), default=0)


def _info(config: m.Config) -> VersionInfo:
    return VersionInfo(config.number, config.node, config.at, len(config.text.encode()))


def _with_text(config: m.Config | None) -> Version:
    if config is None:
        return Version(0, None, None, 0, "")
    return Version(config.number, config.node, config.at, len(config.text.encode()), config.text)


def _untold(error: StoreUnavailable) -> ClusterUnavailable:
    return ClusterUnavailable(
        f"The cluster's configuration cannot be reached: {error}. Try again.", retry_after=_RETRY_S
    )
