"""A pool over real or fake engines, planned by bytes on a machine that exists in the test alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.launch import LaunchOptions, ModelFacts, build_launch
from supervisor.core.launch.keeping import kept
from supervisor.core.schedule import ModelPolicy, Scheduler, SchedulerLimits
from supervisor.core.schedule.events import EngineId, Failure, ModelId, Plan
from supervisor.engines.engine import Engine, EngineLimits
from supervisor.engines.llama.manner import Attendants, llama_engine
from supervisor.engines.llama.slots import SlotKeeper, SlotStore
from supervisor.engines.log import OutputLog
from supervisor.pool.living import Living
from supervisor.pool.pool import Lease, Pool, PoolEdges, PoolLimits
from supervisor.system.child import StopGrace
from supervisor.system.sockets import fresh_socket
from tests.core.schedule.toy import ToyPlanner
from tests.shell.waiting import until

QUICK = EngineLimits(stall_s=30.0, grace=StopGrace(ask_s=2.0, term_s=0.5))


@dataclass
class PoolBench:
    """Makes pools; all models are the same file.

    Attributes:
        arguments: further arguments for the engines, by model.
        hidden: bytes by device that a look does not show free once no engine lives any more.
        allowed: bytes of the host's memory that an engine may come to hold; None: without limit.
        store: keeps what the slots of the engines hold; None: nobody does.
        unreadable: raised when the pool learns of a model.
        others: further arguments that are tried once where a load with the present ones failed, by model.
        failures: of loads.
        endless: models whose reading takes for ever.
        called_off: those of them whose reading was cancelled.
        seen: what the pool observed, as (event, model, code).
        emptied: models whose last engine had ended as it was told to.
        looks: how often the machine was looked at.
        answers: how often an engine that was asked whether it lives has answered, and was weighed.
    """

    binary: str
    model: Path
    folder: Path
    room: dict[str, int] = field(default_factory=lambda: {"GPU0": 10})
    sizes: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys("abc", 10))
    policies: Mapping[str, ModelPolicy] = field(default_factory=dict)
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hidden: dict[str, int] = field(default_factory=dict)
    allowed: int | None = None
    store: SlotStore | None = None
    unreadable: dict[str, Exception] = field(default_factory=dict)
    endless: frozenset[str] = frozenset()
    called_off: list[str] = field(default_factory=list)
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    looks: int = 0
    answers: int = 0

    def __post_init__(self) -> None:
        self.log = OutputLog(self.folder / "engine.log")
        self.planner = ToyPlanner(dict(self.room), self.sizes)

    def pool(self, limits: SchedulerLimits | None = None, pool_limits: PoolLimits | None = None) -> Pool:
        """A pool of its own scheduler."""
        scheduler = Scheduler(self.planner, lambda model: self.policies.get(model, ModelPolicy()), limits)
        clock = asyncio.get_running_loop().time
        edges = PoolEdges(
            *(self._prepare, self._learn, self._see_room, clock, self._observe),
            emptied=self.emptied.append,
            again=self._again,
            allowed=self._allowed,
        )
        return Pool(scheduler, edges, pool_limits)

    def alive(self) -> list[Engine]:
        """Engines whose process lives."""
        return [engine for engine in self.engines if engine.pid is not None and not engine.exit.done()]

    async def _prepare(self, model: ModelId, plan: Plan) -> Engine:
        held = sum(1 for _ in self.alive()) * 10
        assert held + 10 <= sum(self.room.values()), "an engine is started beside one that has not left"
        options = LaunchOptions(parallel=2, ctx_size=4096, threads=1, extra_args=self.arguments.get(model, ()))
        keeper = self.store.keeper(model, model, 64) if self.store else None
        if keeper is not None:
            options = kept(options, str(keeper.folder), {"--no-cache-idle-slots": False})
        socket = str(fresh_socket(self.folder / "run"))
        launch = build_launch(self.binary, str(self.model), socket, model, options, ModelFacts())
        engine = llama_engine(
            launch,
            log=self.log,
            record_dir=self.folder / "children",
            limits=QUICK,
            attendants=self._attendants(keeper),
        )
        self.engines.append(engine)
        return engine

    def _attendants(self, keeper: SlotKeeper | None) -> Attendants:
        return Attendants(keeper=keeper)

    def _again(self, model: ModelId, plan: Plan, failure: Failure) -> bool:
        self.failures.append(failure)
        if model not in self.others:
            return False
        self.arguments = {**self.arguments, model: self.others.pop(model)}
        return True

    def _allowed(self, plan: Plan) -> int | None:
        self.answers += 1
        return self.allowed

    async def more_answers(self, count: int) -> None:
        """Wait until engines have answered so often from now on."""
        wanted = self.answers + count
        await until(lambda: self.answers >= wanted, f"{count} more answers of engines")

    async def _learn(self, model: ModelId, living: Living) -> None:
        if model in self.unreadable:
            raise self.unreadable[model]
        if model in self.endless:
            try:
                await asyncio.Event().wait()
            finally:
                self.called_off.append(model)

    async def _see_room(self, living: Living) -> Mapping[str, int]:
        self.looks += 1
        hidden = {} if self.alive() else self.hidden
        self.planner.room = {device: size - hidden.get(device, 0) for device, size in self.room.items()}
        return dict(self.planner.room)

    def _observe(self, event: str, model: ModelId, engine: EngineId, failure: Failure | None) -> None:
        self.seen.append((event, model, failure.code if failure else None))


async def chat(lease: Lease, content: str = "Hi", length: int = 16) -> str:
    """The whole answer of at most `length` tokens; raises EngineUnreachable where the engine dies."""
    body = json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": length}).encode()
    async with lease.client.post("/v1/chat/completions", body) as answer:
        found = await answer.json()
    text: str = found["choices"][0]["message"]["content"]
    return text


async def processed(lease: Lease, content: str) -> int:
    """Tokens of the prompt that the engine had to process for a short answer."""
    body = json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 4}).encode()
    async with lease.client.post("/v1/chat/completions", body) as answer:
        count: int = (await answer.json())["timings"]["prompt_n"]
    return count
