"""From a model id to an engine that can be started: files, binary, command line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.capabilities import Capabilities
from supervisor.core.launch import LaunchOptions, LaunchSpec, build_launch, check_extra, check_options, facts_of
from supervisor.core.registry import ModelEntry, Registry
from supervisor.cores import physical_cores
from supervisor.demo.builtin import demo_file_name
from supervisor.engine import Engine, EngineLimits
from supervisor.engine_log import OutputLog
from supervisor.errors import EngineNotFound, EngineUnusable, ModelLoadFailed
from supervisor.learning import Learning, StartNotes, intent_of
from supervisor.llamacpp.digest import engine_digest
from supervisor.llamacpp.libraries import runtime_libraries
from supervisor.llamacpp.locate import EngineBinary, capability_cache, locate
from supervisor.llamacpp.probe import capabilities
from supervisor.modelfiles import ModelFile, open_model
from supervisor.paths import Places
from supervisor.projectors import projector_beside
from supervisor.sockets import fresh_socket


@dataclass
class EngineMaker:
    """Builds engines for the pool, and keeps the log of each model through all of its engines.

    Slow work (files, running the binary for its flags) happens in a thread beside the event loop.
    """

    registry: Registry
    places: Places
    env: Mapping[str, str]
    engine_path: str | None
    limits: EngineLimits
    learning: Learning | None = None
    _logs: dict[str, OutputLog] = field(default_factory=dict)

    async def prepare(self, model_id: str) -> Engine:
        """The engine for a model, not started.

        Raises EngineNotFound, EngineUnusable, ModelFileError, ShardMissing, OptionNotSupported and their like.
        """
        entry = self.registry.find(model_id)
        path = Path(entry.path) if entry.path is not None else await make_demo_model(self.places)
        launch, notes = await asyncio.to_thread(self._launch, entry, path)
        return Engine(
            launch,
            log=self.log(entry.id),
            record_dir=self.places.pid_records,
            limits=self.limits,
            environ=self.env,
            notes=notes,
        )

    def check(self, options: LaunchOptions, client_args: Sequence[str] = ()) -> None:
        """Raise InvalidRequest or OptionNotSupported where no engine could be started with these options.

        `client_args` are those of its further arguments that a client gave, who may give less than the configuration.
        """
        try:
            flags = self.binary()[1].flags
        except (EngineNotFound, EngineUnusable):
            flags = None  # that is for the load to say
        check_extra(client_args, flags, "client")
        check_options(options, flags)

    def log(self, model_id: str) -> OutputLog:
        """The log of a model's engines."""
        if model_id not in self._logs:
            self._logs[model_id] = OutputLog(self.places.engine_log(model_id))
        return self._logs[model_id]

    def binary(self) -> tuple[EngineBinary, Capabilities]:
        """The `llama-server` in use and what it can do; raises EngineNotFound, EngineUnusable."""
        binary = locate(self.places, self.env, self.engine_path)
        return binary, capabilities(binary.path, capability_cache(self.places))

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs.values():
            log.close()

    def _launch(self, entry: ModelEntry, path: Path) -> tuple[LaunchSpec, StartNotes | None]:
        model = open_model(path)
        binary, known = self.binary()
        launch = build_launch(
            str(binary.path),
            str(model.path),
            str(fresh_socket(self.places.runtime)),
            entry.id,
            entry.options,
            facts_of(model.header, _projector(entry.options, model)),
            known.flags,
            cores=physical_cores(),
            libraries=runtime_libraries(binary.path, self.env, known.backends),
        )
        if self.learning is None:
            return launch, None
        digest = engine_digest(binary.path, self.places.cache / "engine-digests.json")
        intent = intent_of(model.header, launch, entry.options, known.backends)
        notes = self.learning.begin(model.header, intent, digest, known.build)
        return notes.asked(launch, known.flags), notes


def _projector(options: LaunchOptions, model: ModelFile) -> str | None:
    """The projector beside the model, where one is to be looked for."""
    found = projector_beside(model) if options.mmproj_auto and options.mmproj is None else None
    return None if found is None else str(found)


async def make_demo_model(places: Places) -> Path:
    """The built-in model's file, made on first use by a process of its own; raises ModelLoadFailed."""
    ready = places.cache / demo_file_name()
    if ready.is_file():
        return ready
    maker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "supervisor.demo", str(places.cache)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await maker.communicate()
    except asyncio.CancelledError:
        maker.kill()
        await maker.wait()
        raise
    if maker.returncode != 0:
        lines = tuple(errors.decode("utf-8", "replace").splitlines()[-5:])
        raise ModelLoadFailed(f"The built-in model could not be made in {places.cache}.", log_lines=lines)
    return ready
