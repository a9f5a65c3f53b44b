"""The kind `mlx`: knows what a model will hold before it is loaded, finds room for it, and makes its engines."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from supervisor.core.devices import HOST
from supervisor.core.history.records import Spent
from supervisor.core.launch.fallback import Fallback
from supervisor.core.mlx.memory import MlxMemory, MlxSettings, estimate, kept_bytes, max_context
from supervisor.core.mlx.settings import check, settings_of
from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Place, Resident, seat
from supervisor.core.plan.why import gib
from supervisor.core.schedule.events import Failure
from supervisor.core.takeover.carried import Address
from supervisor.engines.command.measured import Measured, held_before
from supervisor.engines.engine import Engine
from supervisor.engines.kind import Ground, Kind, Living, MlxFolder, Read, Sight, Yard
from supervisor.engines.mlx.command import MlxLaunch
from supervisor.engines.mlx.environment import require_python
from supervisor.engines.mlx.manner import MlxManner
from supervisor.engines.mlx.options import SHARED, MlxOptions, said_in
from supervisor.engines.service import Service
from supervisor.errors import InvalidRequest, ModelConfigError, ModelFileError
from supervisor.system.sockets import fresh_socket

SERVICE: Final = Service(
    frozenset({
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/completion"),
        *("/tokenize", "/detokenize", "/apply-template", "/props", "/slots"),
    }),
    chats=True,
)
_SMALLEST = 512  # tokens: with fewer a model is not loaded unless somebody asks for it


@dataclass(frozen=True)
class MlxRead(Read):
    """A model, and how it is to be run.

    Attributes:
        settings: `context` is the longest that is wanted; `given`: exactly that one.
        held: bytes that it was seen to hold when it ran like this before; 0: it never did.
    """

    model: MlxFolder = field(kw_only=True)
    settings: MlxSettings = field(kw_only=True)
    given: bool = field(kw_only=True)
    held: int = field(kw_only=True)

    def total(self, context: int) -> int:
        """Return the bytes that it will hold with a context of so many tokens."""
        return max(self.held, self.parts(context).total)

    def parts(self, context: int) -> MlxMemory:
        """Return the same by part, as it is estimated."""
        return estimate(self.model.facts, replace(self.settings, context=context))

    def context_within(self, room: int) -> int:
        """Return the context of an engine that may hold so many bytes; 0: none fits."""
        if self.given or self.total(self.settings.context) <= room:
            return self.settings.context
        longest = max_context(self.model.facts, self.settings, room)
        return min(longest, self.settings.context)


@dataclass(frozen=True)
class MlxPlanning:
    """Plans for models for MLX: all that they hold is the host's memory, which on Apple's machines is the GPU's too."""

    ground: Ground

    async def know(self, entry: ModelEntry, living: Living) -> MlxRead:
        """Have the model here, downloaded if it is the hub's. Raises ModelFileError and those of downloads."""
        return await self._read(*await self.ground.mlx.ensure_mlx(entry))

    async def glance(self, entry: ModelEntry, living: Living) -> MlxRead:
        """Return the same without a download."""
        return await self._read(*await self.ground.mlx.glance_mlx(entry))

    def plan(self, read: Read, sight: Sight, residents: Sequence[Resident]) -> tuple[Place | DoesNotFit, bool]:
        """Return the seat for what it will hold; of the contexts that fit the longest, if nobody has named one."""
        assert isinstance(read, MlxRead)  # what `know` gives
        found = self._seat(read, read.settings.context, sight, residents)
        if not isinstance(found, DoesNotFit) or read.given or not found.shortages:
            return found, False
        context = read.context_within(found.shortages[0].usable_bytes)
        if context < min(_SMALLEST, read.settings.context):
            return found, False
        return self._seat(read, context, sight, residents), False

    def again(self, fallback: Fallback, failure: Failure, entry: ModelEntry, place: Place) -> Fallback | None:
        """Return None: there is nothing else to try."""
        return None

    def check(self, entry: ModelEntry, given: Sequence[str] = ()) -> None:
        """Raise InvalidRequest for arguments of llama-server's, and for values that mean nothing."""
        check(said_in(entry.options))
        if given:
            message = f"'{entry.id}' is run by mlx-lm, which takes no arguments of llama-server's. Leave them out."
            raise InvalidRequest(message, param="extra_args")

    def told(self, read: Read, sight: Sight, place: Place, answered: Sequence[Spent]) -> Mapping[str, object]:
        """Return the context and the launcher's arguments; how fast it will be is not known."""
        launch = _launch(read, place)
        return {"ctx_size": launch.settings.context, "arguments": list(launch.arguments()), "env": {}, "speed": None}

    def _seat(self, read: MlxRead, context: int, sight: Sight, residents: Sequence[Resident]) -> Place | DoesNotFit:
        total, parts = read.total(context), read.parts(context)
        why = (
            f"It holds {gib(parts.weights)} of weights, {gib(parts.cache)} of caches for {context:,} tokens, "
            f"{gib(parts.prompt_cache)} of caches that are kept, and at most {gib(parts.compute + parts.base)} to run."
        )
        learned = total > parts.total
        return seat(read.entry.id, {HOST: total}, sight.budgets, residents, learned=learned, why=why)

    async def _read(self, entry: ModelEntry, model: MlxFolder) -> MlxRead:
        if model.facts.custom_code:
            raise ModelConfigError(
                f"'{entry.id}' brings Python code of its own, which is never run. Take a model of a known type."
            )
        settings = settings_of(model.facts, said_in(entry.options))
        identity = _identity(model, settings)
        held = await asyncio.to_thread(held_before, self.ground.memory, identity)
        given = bool(entry.options.ctx_size)
        return MlxRead(entry, model=model, settings=settings, given=given, held=held.get(HOST, 0))


@dataclass(frozen=True)
class MlxLaunching:
    """Engines for models for MLX."""

    yard: Yard

    async def prepare(self, read: Read, sight: Sight, place: Place, at: Address | None = None) -> Engine:
        """Return the engine, not started. Raise EngineNotFound without mlx-lm."""
        assert isinstance(read, MlxRead)
        entry, yard = read.entry, self.yard
        if entry.path is None:
            raise ModelFileError(f"'{entry.id}' is not on disk.")
        python = await asyncio.to_thread(require_python, yard.env)
        identity = _identity(read.model, read.settings)
        before = {HOST: read.held} if read.held else {}
        measured = Measured(yard.memory, identity, before, yard.process_bytes, yard.clock)
        socket = at if isinstance(at, str) else str(await asyncio.to_thread(fresh_socket, yard.runtime))
        log = yard.log(entry.id)
        argv = _launch(read, place).argv(python, socket)
        manner = MlxManner(argv, socket, (yard.env, entry.options.env), log, measured)
        return Engine(manner, log=log, record_dir=yard.records, limits=yard.limits())


def _launch(read: Read, place: Place) -> MlxLaunch:
    assert isinstance(read, MlxRead)
    context = read.context_within(place.used_bytes[HOST])
    settings = replace(read.settings, context=context)
    settings = replace(settings, prompt_cache_bytes=kept_bytes(read.model.facts, settings))
    return MlxLaunch(read.model.folder, read.entry.id, settings, read.entry.options.chat_template_kwargs or {})


def _identity(model: MlxFolder, settings: MlxSettings) -> str:
    """Return the key by which it is remembered what a model holds that is run like this."""
    text = repr((str(model.folder), model.size_bytes, settings))
    return f"mlx:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


MLX: Final = Kind(
    name="mlx",
    summary="mlx-lm, for models in safetensors.",
    options=MlxOptions,
    shared=SHARED,
    lacks=frozenset(),
    source=None,
    placed=lambda options, absolute: {},
    complaints=lambda options: (),
    service=lambda entry: SERVICE,
    planning=MlxPlanning,
    launching=MlxLaunching,
)
