"""Who may have a hub's files nearer than the hub: the other nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from supervisor.core.repository import RepoFile
from supervisor.hub.listing import Repository


class Nearby(Protocol):
    """They are asked before the hub is."""

    async def fetch(
        self, repository: Repository, files: Sequence[RepoFile], heard: Callable[[Mapping[str, Any]], None]
    ) -> Mapping[str, int]:
        """Have as many of these files in the cache as there are nearby, checked as the hub's are.

        heard: is given the lines that a download says (`hub/download.py`), and `source` with `from` whenever another
        one's bytes begin to come. What does not come is for the hub to give. Returns, by path, of how many bytes at the
        beginning of what arrived of such a file nothing new is known: the others may be wrong. Raises DiskFull.
        """

    def listing(self, repo: str, revision: str | None) -> Repository | None:
        """Return what one of them has of a repository, for when the hub cannot be asked. Blocks.

        None: nobody has anything of it.
        """

    def read(self, sha256: str, size: int, first: int, last: int) -> bytes | None:
        """Return these bytes of a content, by the word of one of them, for when the hub cannot be asked. Blocks.

        None: nobody has it.
        """
