"""What the program needs of a kind of engine, in three parts, and the record that names it.

A kind is a folder below `engines` and a row in `engines/kinds`. Its `Planning` knows a model before there is a process
and says where it goes. Its `Launching` makes an engine of that. Its `Service` tells the relay how the engine is asked.
An engine that runs is an `Engine` with a `Manner` (`engines/manner`). Nobody outside `engines` asks of which kind a
model is: whoever has a model's entry asks the table for the part, and the part for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from supervisor.core.devices import Budgets, Holding, Machine
from supervisor.core.history.records import Spent
from supervisor.core.launch.fallback import Fallback
from supervisor.core.learn.history import Observation
from supervisor.core.mlx.facts import MlxFacts
from supervisor.core.models.registry import ModelEntry
from supervisor.core.options import options_of
from supervisor.core.plan import DoesNotFit, Place, Resident
from supervisor.core.schedule.events import Failure
from supervisor.core.takeover.carried import Address
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.log import OutputLog
from supervisor.engines.service import Service
from supervisor.store import Database


class Living(Protocol):
    """The engines that there are now; a pool is one."""

    def residents(self) -> Sequence[Resident]:
        """Return the engines' planned memory, and which of them may leave."""

    def holdings(self) -> Sequence[Holding]:
        """Return the memory of the engines that have a process."""


class Sight(Protocol):
    """The result of a look at the machine."""

    @property
    def machine(self) -> Machine:
        """Devices and host."""

    @property
    def budgets(self) -> Budgets:
        """Part of their memory that is for our engines."""


@dataclass(frozen=True)
class Read:
    """A model of which its kind knows what a plan and a launch need. Every kind adds what it knows.

    fallback: what failed starts have led to.
    """

    entry: ModelEntry
    fallback: Fallback = field(default_factory=Fallback, kw_only=True)


class Planning(Protocol):
    """Knows models of its kind, and says where they go."""

    async def know(self, entry: ModelEntry, living: Living) -> Read:
        """Have all here that a start needs, downloads included, and read it; beside these engines.

        Raises the SupervisorError that a load fails with.
        """

    async def glance(self, entry: ModelEntry, living: Living) -> Read:
        """Return the same without a download, on a machine that may lack what runs it."""

    def plan(self, read: Read, sight: Sight, residents: Sequence[Resident]) -> tuple[Place | DoesNotFit, bool]:
        """Return where the model goes beside these engines, or why nowhere; and whether a guess counts in it.

        Pure: by what was read and seen. Raises InvalidRequest for what cannot be planned.
        """

    def again(self, fallback: Fallback, failure: Failure, entry: ModelEntry, place: Place) -> Fallback | None:
        """Return what is to be tried after a start that failed; None: nothing else."""

    def check(self, entry: ModelEntry, given: Sequence[str] = ()) -> None:
        """Raise OptionNotSupported or InvalidRequest for options that cannot be. given: further arguments of a client.

        Blocks.
        """

    def told(self, read: Read, sight: Sight, place: Place, answered: Sequence[Spent]) -> Mapping[str, object]:
        """Return what a plan tells beside the place: `arguments`, `env`, `speed` (docs/rest.md).

        answered: what the model's newest requests took.
        """


class Launching(Protocol):
    """Makes engines of its kind."""

    async def prepare(self, read: Read, sight: Sight, place: Place, at: Address | None = None) -> Engine:
        """Return the engine for a model at its place, not started. Raise the SupervisorError that a load fails with.

        at: where it listens already, as it is to be adopted; None: somewhere new.
        """


class MlxFolder(Protocol):
    """A model in safetensors."""

    @property
    def folder(self) -> Path:
        """Folder that it is in, or would be."""

    @property
    def facts(self) -> MlxFacts:
        """Facts that decide its memory."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its weights' files."""


class MlxModels(Protocol):
    """Knows models in safetensors, those of the hub among them."""

    async def ensure_mlx(self, entry: ModelEntry) -> tuple[ModelEntry, MlxFolder]:
        """Return the entry, which names a folder on disk now, and the model, downloaded if it was missing."""

    async def glance_mlx(self, entry: ModelEntry) -> tuple[ModelEntry, MlxFolder]:
        """Return the same without a download; then the folder need not be there."""


class Memory(Protocol):
    """What is remembered of earlier starts, and takes new facts without making the caller wait."""

    def observations(self, model: str) -> tuple[Observation, ...]:
        """Return what starts of a model showed, newest first. Blocks briefly."""

    def later(self, what: str, job: Callable[[Database], None]) -> None:
        """Write something down, in order, beside the caller; what cannot be kept is logged as `what`."""


@dataclass(frozen=True)
class Ground:
    """What plans are made with.

    Attributes:
        memory: of earlier starts.
        clock: seconds since 1970.
        gguf: plans for models in GGUF, with the hub and the headers behind it.
        mlx: has models in safetensors.
    """

    memory: Memory
    clock: Callable[[], float]
    gguf: Planning
    mlx: MlxModels


@dataclass(frozen=True)
class Yard:
    """What engines are made with.

    Attributes:
        memory: of earlier starts.
        clock: seconds since 1970.
        process_bytes: what drivers say that a process holds, by device; it blocks.
        env: our own environment, of which engines get a part.
        records: the folder of the children's records.
        runtime: the folder of sockets.
        limits: those of an engine that is made now.
        log: of a model, by its id.
        gguf: makes engines for models in GGUF.
    """

    memory: Memory
    clock: Callable[[], float]
    process_bytes: Callable[[int], Mapping[str, int]]
    env: Mapping[str, str]
    records: Path
    runtime: Path
    limits: Callable[[], EngineLimits]
    log: Callable[[str], OutputLog]
    gguf: Launching


@dataclass(frozen=True)
class Kind:
    """A kind of engine.

    Attributes:
        name: as entries have it.
        summary: a sentence for people.
        options: the table of the options that it knows (core/options).
        shared: names of launch options of all models that it takes too.
        lacks: names of other settings of a model that mean nothing to it.
        source: what `source` says in the configuration for a model of this kind; None: it is found by other means.
        placed: the settings whose relative paths are made absolute, by the function that does it.
        complaints: what is wrong between its options, each with the name of the option.
        service: how its engines are asked.
        planning, launching: its parts.
    """

    name: str
    summary: str
    options: type[Any]
    shared: frozenset[str]
    lacks: frozenset[str]
    source: str | None
    placed: Callable[[Any, Callable[[str], str]], Mapping[str, object]]
    complaints: Callable[[Any], Sequence[tuple[str, str]]]
    service: Callable[[ModelEntry], Service]
    planning: Callable[[Ground], Planning]
    launching: Callable[[Yard], Launching]

    @property
    def knows(self) -> frozenset[str]:
        """Names of the options that it takes."""
        return self.shared.union(row.name for row in options_of(self.options))
