"""Files of models from other nodes, before the hub is asked; and what they have, where the hub cannot be asked."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import structlog

from supervisor.cluster.kept import Membership
from supervisor.cluster.lenders import Busy, Faulty, Lender, Lenders
from supervisor.cluster.peerresponse import PeerUnreachable
from supervisor.cluster.peers import Peers, Refused
from supervisor.core.cluster.directory import Directory, Seen
from supervisor.core.cluster.ranges import Range
from supervisor.core.environment import for_python
from supervisor.core.repository import RepoFile
from supervisor.errors import DiskFull, HubError
from supervisor.hub.jobs import run_job
from supervisor.hub.listing import MAIN, Repository, read_listing

_log = structlog.get_logger()

_WORKER: Final = "supervisor.cluster.borrower"
_MOST_ASKED: Final = 16
_LISTING_S: Final = 5.0
_WAIT_S: Final = 10.0
_READ_S: Final = 60.0


@dataclass(frozen=True)
class Borrowing:
    """The other nodes, for who downloads (`hub.nearby.Nearby`).

    Attributes:
        directory: those that can be reached, of which some are asked; by the seconds of this clock.
        cache: folder of the hub's cache.
        env: our own environment, of which the process gets a part.
        records: where its process is noted; None: nowhere.
        patience, asking: seconds, as in `borrower.Job`.
    """

    kept: Membership
    directory: Directory
    clock: Callable[[], float]
    peers: Peers
    cache: Path
    env: Mapping[str, str]
    records: Path | None
    patience: float = 15.0
    asking: float = 10.0
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def fetch(
        self, repository: Repository, files: Sequence[RepoFile], heard: Callable[[Mapping[str, Any]], None]
    ) -> Mapping[str, int]:
        """See `Nearby`."""
        wanted = [one for one in files if one.sha256 is not None and one.size is not None and one.etag == one.sha256]
        nodes = self._asked()
        kept: dict[str, int] = {}
        if not (wanted and nodes):
            return kept

        def line(said: dict[str, Any]) -> None:
            match said.get("event"):
                case "failed":
                    _log_failed(said["node"], said["message"])
                case "left":
                    kept[said["path"]] = said["kept"]
                case "error":
                    pass
                case _:
                    heard(said)

        job = {
            "cache": str(self.cache),
            "authority": str(self.kept.authority),
            "chain": str(self.kept.chain),
            "key": str(self.kept.key),
            "nodes": [msgspec.to_builtins(one) for one in _lenders(nodes)],
            "repo": repository.id,
            "commit": repository.commit,
            "patience": self.patience,
            "asking": self.asking,
            "files": [{"path": one.path, "size": one.size, "sha256": one.sha256} for one in wanted],
        }
        last = await run_job(_WORKER, job, for_python(self.env), line, self.records)
        if last.get("event") == "error":
            if last.get("kind") == "full":
                raise DiskFull(
                    f"The disk with {self.cache} ran full while {repository.id} came from another node. What arrived "
                    "is kept; make room and try again."
                )
            _log.warning("files_not_borrowed", repository=repository.id, reason=last.get("message"))
        return kept

    def listing(self, repo: str, revision: str | None) -> Repository | None:
        """See `Nearby`."""
        asking = asyncio.run_coroutine_threadsafe(self._listing(repo, revision or MAIN), self.loop)
        try:
            return asking.result(_WAIT_S)
        except (TimeoutError, CancelledError):
            asking.cancel()
            return None

    def read(self, sha256: str, size: int, first: int, last: int) -> bytes | None:
        """See `Nearby`."""
        lenders = Lenders(_lenders(self._asked()), self.kept.dialling(), self.patience, self.asking, _log_failed)
        reading = asyncio.run_coroutine_threadsafe(_read(lenders, sha256, Range(first, last, size)), self.loop)
        try:
            return reading.result(_READ_S)
        except (TimeoutError, CancelledError):
            reading.cancel()
            return None

    async def _listing(self, repo: str, revision: str) -> Repository | None:
        """Return the fullest of what the others have; of equals, that of the first by name."""
        nodes = sorted(self._asked(), key=lambda one: one.node.name)
        answers = await asyncio.gather(*(self._listing_of(one, repo, revision) for one in nodes))
        found = [one for one in answers if one is not None and one.files]
        return max(found, key=lambda one: len(one.files), default=None)

    async def _listing_of(self, seen: Seen, repo: str, revision: str) -> Repository | None:
        target = f"/cluster/repositories/{quote(repo)}?revision={quote(revision, safe='')}"
        try:
            client = self.peers.client(seen.node)
            said = await self.peers.ask(client, "GET", target, None, _LISTING_S)
            found = read_listing(json.dumps(said).encode(), repo, revision, seen.node.name)
        except (PeerUnreachable, Refused, HubError) as error:
            _log.debug("repository_not_told", node=seen.node.name, repository=repo, reason=str(error))
            return None
        return found if found.id.lower() == repo.lower() else None

    def _asked(self) -> list[Seen]:
        """Return the nodes that are asked, in any order, so that not all ask the same one first."""
        others = self.directory.others(self.clock())
        return random.sample(others, min(len(others), _MOST_ASKED))


def _lenders(nodes: Sequence[Seen]) -> list[Lender]:
    return [Lender(one.node.name, one.node.host, one.node.port, one.node.serial) for one in nodes]


def _log_failed(node: str, why: str) -> None:
    _log.warning("file_not_borrowed", node=node, reason=why)


async def _read(lenders: Lenders, sha256: str, part: Range) -> bytes | None:
    """Return a part of a content of the first node that gives it."""
    holders, tried = lenders.holders(sha256, part.size), set[str]()
    try:
        while (name := await holders.next(tried)) is not None:
            found = bytearray()
            try:
                await lenders.part(name, sha256, part, found.extend)
            except (PeerUnreachable, Faulty, Busy, TimeoutError) as error:
                _log_failed(name, str(error) or "it is slow")
                tried.add(name)
            else:
                return bytes(found)
        return None
    finally:
        holders.close()
        await lenders.close()
