"""What a cluster needs of a distributed store, in a handful of calls. `natsstore` is the one there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Bucket = Literal["nodes", "claims", "config"]
"""`nodes` are kept; `claims` end by themselves after `CLAIM_S`; of `config` the last `MOST_VERSIONS` are kept."""

MOST_VERSIONS: Final = 32
"""Of the configuration."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a key has. value: None where it was removed. revision: grows with every change in its bucket."""

    key: str
    value: bytes | None
    revision: int


class StoreUnavailable(Exception):
    """The store does not answer, or has no majority."""


class Store(Protocol):
    """The store. Every call raises StoreUnavailable, after seconds at most."""

    async def ready(self) -> None:
        """Have the buckets there, once it is connected."""

    async def put(self, bucket: Bucket, key: str, value: bytes | None) -> None:
        """Write a key, or remove it."""

    async def create(self, bucket: Bucket, key: str, value: bytes) -> Entry:
        """Write a key that has no value; return what it has then: this value, or that of another who was first."""

    async def update(self, bucket: Bucket, key: str, value: bytes | None, revision: int) -> int | None:
        """Write or remove a key that is at this revision; return its new one (of one that was removed: the
        same), None where it is at another.
        """

    async def history(self, bucket: Bucket, key: str) -> list[Entry]:
        """Return what a key has had, as far as it is kept, the oldest first; empty where it has had nothing."""

    async def watch(self, bucket: Bucket, hear: Callable[[Entry], None]) -> None:
        """Have all that a bucket has, and every change of it, told for as long as the connection lasts."""

    async def publish(self, data: bytes, hear: Callable[[bytes], None] | None = None) -> None:
        """Tell all who listen; what is told is not kept. hear: is told from now on what others publish."""
