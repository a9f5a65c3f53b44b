"""The versions of the configuration that the nodes of a cluster share, as they are shown and set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from supervisor.config.shared import Shared


@dataclass(frozen=True)
class VersionInfo:
    """A version of the cluster's configuration.

    Attributes:
        version: its number; 0: none was set yet.
        node: at which it was set; null where none was.
        at: when, in seconds since 1970.
        bytes: size of its text.
    """

    version: int
    node: str | None
    at: float | None
    bytes: int


@dataclass(frozen=True)
class Version(VersionInfo):
    """The same with its text."""

    text: str


@dataclass(frozen=True)
class VersionList:
    """The versions that are kept, the newest first."""

    versions: Sequence[VersionInfo]


@dataclass(frozen=True)
class VersionSet:
    """A version that was set. problem: why the node that was asked has not taken it over; null: it has."""

    version: int
    node: str
    at: float
    bytes: int
    problem: str | None


class Versions(Protocol):
    """What is asked of the versions. Every call raises ClusterUnavailable where the store cannot be asked."""

    async def show(self, number: int | None) -> Version:
        """Return a version, or the newest: that one needs no store. Raises VersionNotFound."""

    async def history(self) -> VersionList:
        """Return what is kept."""

    async def check(self, text: str) -> None:
        """Raise ConfigError where this is no configuration of a cluster, or not one that this node can take over."""

    async def set(self, text: str, expected: int | None) -> VersionSet:
        """Set the next version. expected: number of the present one; null: whichever it is.

        Raises as `check`, and VersionChanged where the present one is another.
        """

    async def revert(self, number: int, expected: int | None) -> VersionSet:
        """Set the text of an earlier version anew. Raises as `set`, and VersionNotFound."""


class Taking(Protocol):
    """What takes a version over: the configuration of the daemon."""

    @property
    def shared(self) -> Shared | None:
        """The version in force; None: there is none."""

    async def share(self, shared: Shared) -> object:
        """Put a version in force. Raises SupervisorError; then all stays."""

    async def try_shared(self, shared: Shared) -> None:
        """Raise what `share` would."""
