"""From what is known of a model and its place to an engine that can be started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from supervisor.core.devices import Device
from supervisor.core.launch import LaunchSpec, Placed, build_launch
from supervisor.core.launch.keeping import kept, slots_key
from supervisor.core.plan import Placement
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.llama.manner import Attendants, llama_engine
from supervisor.engines.llama.slots import SlotKeeper, SlotStore
from supervisor.errors import InvalidRequest
from supervisor.files.stamps import stamps
from supervisor.llamacpp.libraries import runtime_libraries
from supervisor.llamacpp.program import Program
from supervisor.models.configured import named_files
from supervisor.planning.known import Known
from supervisor.planning.learning import Learning, StartNotes, intent_of, start_of
from supervisor.service.enginelogs import EngineLogs
from supervisor.system.paths import Places
from supervisor.system.sockets import fresh_socket


@dataclass(frozen=True)
class Commands:
    """The command lines of engines. `cores`: the physical ones of the machine; None: unknown."""

    program: Program
    env: Mapping[str, str]
    cores: int | None

    def arguments(self, known: Known, placed: Placed) -> tuple[str, ...]:
        """Return llama-server's arguments for a model at its place, without its own path; the socket is an example.

        Without a llama-server that tells its options: by today's names, and nothing beyond what is needed.
        """
        return self.of(known, placed, "engine.sock").argv[1:]

    def of(self, known: Known, placed: Placed, socket: str, keeper: SlotKeeper | None = None) -> LaunchSpec:
        """The command of an engine that listens on `socket`; `keeper` keeps its slots."""
        entry, info, found = known.entry, known.info, self.program.usable()
        flags = found.able.flags if found else None
        return build_launch(
            str(found.path) if found else "llama-server",
            str(info.model.path),
            socket,
            entry.id,
            entry.options if keeper is None else kept(entry.options, str(keeper.folder), flags),
            info.facts,
            flags,
            placed=placed,
            cores=self.cores,
            libraries=runtime_libraries(found.path, self.env, found.able.backends) if found else None,
        )


@dataclass(frozen=True)
class Launcher:
    """Makes engines for the pool; what blocks is done in a thread beside the loop.

    Attributes:
        env: our own environment, of which engines get a part.
        limits: those of an engine that is made now.
        slots: what keeps slots on disk.
    """

    program: Program
    commands: Commands
    places: Places
    env: Mapping[str, str]
    limits: Callable[[], EngineLimits]
    learning: Learning
    logs: EngineLogs
    slots: SlotStore

    async def prepare(
        self, known: Known, placed: Placed, devices: Sequence[Device], socket: str | None = None
    ) -> Engine:
        """The engine for a model at its place, not started; `devices` are those of the placement, in its order.

        socket: where it listens already; None: somewhere new.

        Raises EngineNotFound, EngineUnusable, OptionNotSupported and their like.
        """
        keeper = await asyncio.to_thread(self._keeper, known, placed.placement)
        listening = partial(str, socket) if socket is not None else self._fresh
        launch, notes = await asyncio.to_thread(self._launch, known, placed, devices, keeper, listening)
        return llama_engine(
            launch,
            log=self.logs.of(known.entry.id),
            record_dir=self.places.pid_records,
            limits=self.limits(),
            environ=self.env,
            attendants=Attendants(notes, keeper),
        )

    def _fresh(self) -> str:
        return str(fresh_socket(self.places.runtime))

    def _keeper(self, known: Known, placement: Placement) -> SlotKeeper | None:
        """Return the keeper of its slots, if that is asked for and the engine can do it."""
        options = known.entry.options
        if not options.keep_kv:
            return None
        if options.slot_save_path is not None:
            raise InvalidRequest("keep_kv has a folder of its own: leave slot_save_path out.", param="keep_kv")
        types = placement.options.cache_type_k, placement.options.cache_type_v
        tokens = placement.options.ctx_size or placement.estimate.n_ctx or 1
        size = sum(part.kv_bytes for part in placement.parts)
        files = stamps((*known.info.model.parts, *named_files(options)))
        key = slots_key(files, known.engine, options, types)
        return self.slots.keeper(key, known.entry.id, size // tokens)

    def _launch(
        self,
        known: Known,
        placed: Placed,
        devices: Sequence[Device],
        keeper: SlotKeeper | None,
        listening: Callable[[], str],
    ) -> tuple[LaunchSpec, StartNotes]:
        entry, info = known.entry, known.info
        launch = self.commands.of(known, placed, listening(), keeper)
        intent = intent_of(placed.placement, entry.options, devices)
        start = start_of(info.identity, intent, known.engine, known.build)
        notes = self.learning.begin(start, intent, launch.names, info.model.header.n_ctx_train)
        return notes.asked(launch, self.program.find().able.flags), notes
