"""From a catalogue entry and a place to an engine that can be started: files, binary, command line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from supervisor.core.devices import Device
from supervisor.core.engine_output.capabilities import Capabilities
from supervisor.core.launch import LaunchOptions, LaunchSpec, Placed, build_launch, check_extra, check_options
from supervisor.core.launch.keeping import kept, slots_key
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.plan import Placement
from supervisor.demo.builtin import ensure_demo_model
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.log import OutputLog
from supervisor.engines.slots import SlotKeeper, SlotStore
from supervisor.errors import EngineNotFound, EngineUnusable, InvalidRequest, ModelLoadFailed
from supervisor.files.header_cache import HeaderCache
from supervisor.hub.threads import ask_hub
from supervisor.llamacpp.digest import engine_digest
from supervisor.llamacpp.libraries import runtime_libraries
from supervisor.llamacpp.locate import EngineBinary, capability_cache, locate
from supervisor.llamacpp.probe import capabilities
from supervisor.models.fetch import Fetcher
from supervisor.models.subject import Subject, read_subject
from supervisor.planning.learning import Learning, StartNotes, intent_of, start_of
from supervisor.planning.planner import Known
from supervisor.system.cores import physical_cores
from supervisor.system.paths import Places
from supervisor.system.sockets import fresh_socket


@dataclass
class EngineMaker:
    """Builds engines for the pool, and keeps the log of each model through all of its engines.

    Slow work (files, running the binary for its flags) happens in a thread beside the event loop.

    Attributes:
        find_variant: chooses the variant of a model of the hub where only the repository is named; once for each.
    """

    registry: Registry
    places: Places
    env: Mapping[str, str]
    engine_path: str | None
    limits: EngineLimits
    learning: Learning
    fetcher: Fetcher
    slots: SlotStore | None = None
    find_variant: Callable[[ModelEntry], Awaitable[ModelEntry]] | None = None
    cores: int | None = field(default_factory=physical_cores)
    _logs: dict[str, OutputLog] = field(default_factory=dict)
    _variants: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._headers = HeaderCache(self.places.cache / "headers")

    async def know(self, entry: ModelEntry) -> Known:
        """Read the model and look up what is known of it.

        Raises EngineNotFound, EngineUnusable, ModelFileError, ShardMissing and their like.
        """
        await asyncio.to_thread(self.binary)
        if entry.hub is not None:
            here, siblings = await self.fetcher.ensure(await self.with_variant(entry))
            self.registry.locate(entry.id, here.path)
            known = await asyncio.to_thread(self._known, here, Path(here.path or ""))
            return replace(known, subject=replace(known.subject, siblings=siblings))
        return await self.glance(entry)

    async def glance(self, entry: ModelEntry) -> Known:
        """The same on a machine that may have no engine, and without a download."""
        if entry.hub is not None:
            return await ask_hub(self._glance_at_hub, await self.with_variant(entry))
        path = Path(entry.path) if entry.path is not None else await make_demo_model(self.places)
        return await asyncio.to_thread(self._known, entry, path)

    async def with_variant(self, entry: ModelEntry) -> ModelEntry:
        """The entry with the variant that it takes, the same one each time. Raises as `resolve.with_variant`."""
        if self.find_variant is None or entry.hub is None:
            return entry
        key = entry.id, entry.hub
        if key not in self._variants:
            self._variants[key] = (await self.find_variant(entry)).hub or entry.hub
        return replace(entry, hub=self._variants[key])

    async def prepare(self, known: Known, placed: Placed, devices: Sequence[Device]) -> Engine:
        """The engine for a model at its place, not started; `devices` are those of the placement, in its order.

        Raises EngineNotFound, EngineUnusable, OptionNotSupported and their like.
        """
        keeper = await asyncio.to_thread(self._keeper, known, placed.placement)
        launch, notes = await asyncio.to_thread(self._launch, known, placed, devices, keeper)
        engine = Engine(
            launch,
            log=self.log(known.entry.id),
            record_dir=self.places.pid_records,
            limits=self.limits,
            environ=self.env,
            notes=notes,
        )
        engine.keeper = keeper
        return engine

    def arguments(self, known: Known, placed: Placed) -> tuple[str, ...]:
        """What llama-server would be given for it, without its own path; the socket's is an example.

        Without a llama-server that tells its options: by today's names, and nothing beyond what is needed.
        """
        return self._command(known, placed, "engine.sock").argv[1:]

    def check(self, options: LaunchOptions, client_args: Sequence[str] = ()) -> None:
        """Raise InvalidRequest or OptionNotSupported where no engine could be started with these options.

        `client_args` are those of its further arguments that a client gave, who may give less than the configuration.
        """
        found = self._usable()
        flags = found[1].flags if found else None  # without one: that is for the load to say
        check_extra(client_args, flags, "client")
        check_options(options, flags)

    def log(self, model_id: str) -> OutputLog:
        """The log of a model's engines."""
        if model_id not in self._logs:
            self._logs[model_id] = OutputLog(self.places.engine_log(model_id))
        return self._logs[model_id]

    def has_log(self, model_id: str) -> bool:
        """Whether a model had an engine, or was about to, since the daemon began."""
        return model_id in self._logs

    def forget(self, model_id: str) -> None:
        """Let go of what is kept for a model that nobody asks for any more."""
        log = self._logs.pop(model_id, None)
        if log is not None:
            log.close()
        self._variants = {key: hub for key, hub in self._variants.items() if key[0] != model_id}

    def binary(self) -> tuple[EngineBinary, Capabilities]:
        """The `llama-server` in use and what it can do; raises EngineNotFound, EngineUnusable."""
        binary = locate(self.places, self.env, self.engine_path)
        return binary, capabilities(binary.path, capability_cache(self.places))

    def binary_path(self) -> Path | None:
        """The `llama-server` in use; None where there is none."""
        found = self._usable()
        return found[0].path if found else None

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs.values():
            log.close()
        self.fetcher.hub.close()

    def _glance_at_hub(self, entry: ModelEntry) -> Known:
        return self.known(*self.fetcher.subject(entry))

    def _known(self, entry: ModelEntry, path: Path) -> Known:
        return self.known(entry, read_subject(path, entry.options, self._headers))

    def known(self, entry: ModelEntry, subject: Subject) -> Known:
        """What was read of a model, with what earlier starts of it showed."""
        found = self._usable()
        if found is None:
            return Known(entry, subject)
        binary, able = found
        digest = engine_digest(binary.path, self.places.cache / "engine-digests.json")
        return Known(entry, subject, self.learning.observations(subject.identity), digest, able.build)

    def _keeper(self, known: Known, placement: Placement) -> SlotKeeper | None:
        """What keeps its slots, where that is asked for and the engine can do it."""
        options = known.entry.options
        if not options.keep_kv or self.slots is None:
            return None
        if options.slot_save_path is not None:
            raise InvalidRequest("keep_kv has a folder of its own: leave slot_save_path out.", param="keep_kv")
        types = placement.options.cache_type_k, placement.options.cache_type_v
        tokens = placement.options.ctx_size or placement.estimate.n_ctx or 1
        size = sum(part.kv_bytes for part in placement.parts)
        key = slots_key(known.subject.identity, known.engine, options, types)
        return self.slots.keeper(key, known.entry.id, size // tokens)

    def _launch(
        self, known: Known, placed: Placed, devices: Sequence[Device], keeper: SlotKeeper | None
    ) -> tuple[LaunchSpec, StartNotes]:
        entry, subject = known.entry, known.subject
        launch = self._command(known, placed, str(fresh_socket(self.places.runtime)), keeper)
        intent = intent_of(placed.placement, entry.options, devices)
        start = start_of(subject.identity, intent, known.engine, known.build)
        ours = {theirs: name for name, theirs in placed.names.items()}
        notes = self.learning.begin(start, intent, ours, subject.model.header.n_ctx_train)
        return notes.asked(launch, self.binary()[1].flags), notes

    def _command(self, known: Known, placed: Placed, socket: str, keeper: SlotKeeper | None = None) -> LaunchSpec:
        entry, subject = known.entry, known.subject
        found = self._usable()
        options = entry.options if keeper is None else kept(entry.options, str(keeper.folder), found and found[1].flags)
        return build_launch(
            str(found[0].path) if found else "llama-server",
            str(subject.model.path),
            socket,
            entry.id,
            options,
            subject.facts,
            found[1].flags if found else None,
            placed=placed,
            cores=self.cores,
            libraries=runtime_libraries(found[0].path, self.env, found[1].backends) if found else None,
        )

    def _usable(self) -> tuple[EngineBinary, Capabilities] | None:
        """The `llama-server` in use, where there is one."""
        with contextlib.suppress(EngineNotFound, EngineUnusable):
            return self.binary()
        return None


async def make_demo_model(places: Places) -> Path:
    """The built-in model's file, made on first use; raises ModelLoadFailed."""
    try:
        return await asyncio.to_thread(ensure_demo_model, places.cache)
    except OSError as error:
        raise ModelLoadFailed(
            f"The built-in model could not be made in {places.cache} ({error}). "
            "Make that folder writable, or choose another with SUPERVISOR_HOME."
        ) from error
