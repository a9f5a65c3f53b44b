"""Models as other programs' lists have them: those there are, those on disk, and what their files say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from supervisor.config.settings import Autoload
from supervisor.core.doors.names import meant_names
from supervisor.core.doors.ollama_models import FileFacts
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.engines.kind import Planning
from supervisor.engines.kinds import Parts
from supervisor.planning.known import Known, with_header
from supervisor.planning.planner import Planner
from supervisor.pool.living import Living
from supervisor.service.disk import Disk


@dataclass(frozen=True)
class OnDisk:
    """A model of the hub's cache that a request may name, though nobody has configured it."""

    name: str
    size: int
    used: float


@dataclass(frozen=True)
class Listed:
    """What other programs' lists tell.

    Attributes:
        autoload: which models a request may name that nobody has configured.
        started: when the daemon was, in seconds since 1970.
        alone: nothing is told of what is not configured.
    """

    registry: Registry
    planner: Planner
    kinds: Parts[Planning]
    disk: Disk
    living: Living
    autoload: Callable[[], Autoload]
    started: float
    alone: bool = False

    def limited(self, sees: Callable[[str], bool]) -> Self:
        """Return the same for who sees only these models."""
        return replace(self, registry=self.registry.limited(sees), alone=True)

    def find(self, name: str) -> ModelEntry:
        """Return the model that a client of Ollama means. Raise ModelNotFound."""
        names = list(meant_names(name))
        known = next((one for one in names if self.registry.get(one) is not None), names[-1])
        return self.registry.meant(known)

    def give_name(self, model: str, name: str) -> None:
        """Give a model one more name, until the daemon ends. Raise ModelIdTaken, InvalidRequest."""
        entry = self.registry.find(model)
        self.registry.add(replace(entry, aliases=(*entry.aliases, name)), keep=True)

    def known(self, model: str) -> FileFacts | None:
        """Return the facts of a model's file, where it was read for a load."""
        found = self.planner.read(model)
        return _facts(found) if isinstance(found, Known) else None

    async def read(self, entry: ModelEntry) -> FileFacts:
        """Return the facts of a model's file, which is read. Raises as `Planning.glance`, NotSupportedByEngine."""
        return self.known(entry.id) or _facts(with_header(await self.kinds.of(entry).glance(entry, self.living)))

    def modified(self, entry: ModelEntry) -> float:
        """Return when a model's file was written; the start of the daemon where it is not here."""
        with suppress(OSError):
            if entry.path is not None:
                return Path(entry.path).stat().st_mtime
        return self.started

    async def on_disk(self) -> list[OnDisk]:
        """Return the models of the hub's cache that a request may name and that are not in the registry."""
        if self.alone or self.autoload() == "off":
            return []
        found = [one for one in await self.disk.models() if one["store"] == "hub" and not one["missing"]]
        here = [one for one in found if one["problem"] is None and self.registry.by_hub(one["name"]) is None]
        return [OnDisk(one["name"], one["size_bytes"], one["used_at"]) for one in here]


def _facts(known: Known) -> FileFacts:
    spec = known.info.spec
    template = spec.template
    return FileFacts(
        known.info.model.header,
        known.info.inputs,
        spec.pooling,
        tools=template is not None and template.tools,
        thinking=template is not None and template.thinking is not None,
    )
