"""What the routers share: the objects behind them, and the few sentences that more than one of them says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request

from supervisor import __version__
from supervisor.core.devices.describe import as_json
from supervisor.core.models.registry import ModelEntry
from supervisor.core.schedule import Pins
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.engines.log import OutputLog
from supervisor.errors import EngineNotFound, EngineUnusable, InvalidRequest, LoadCancelled, ModelInUse, SupervisorError
from supervisor.planning.estimates import estimates_json
from supervisor.planning.planner import Planner
from supervisor.pool.inflight import Inflight, InflightRequest
from supervisor.pool.pool import Pool, error_of
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.service.disk import Disk
from supervisor.service.launcher import EngineMaker
from supervisor.service.looks import Looks
from supervisor.service.plans import planned
from supervisor.service.reload import Reloader
from supervisor.service.resolve import Answer, Asked, check_startable, entry_for, warning_for
from supervisor.service.status import model_status
from supervisor.service.trials import Newcomers, Trials
from supervisor.system.logs import LogControl

MOST_ADDED = 256
"""Models that loads may add to those of the configuration."""

_NO_REMARK: Mapping[str, Any] = {"note": None, "variants": []}


@dataclass
class Service:
    """The daemon as the API sees it.

    url: the address it listens on. secret: known to whoever may read the endpoint file.
    to_epoch: pool clock → seconds since 1970. request_shutdown: stop everything.
    stopping: whether that was asked for.
    closing: set when whoever listens to events is to be let go. readers: how many those are.
    """

    pool: Pool
    maker: EngineMaker
    planner: Planner
    reloader: Reloader
    own_log: OutputLog
    url: str
    secret: str
    started_at: float
    to_epoch: Callable[[float], float]
    request_shutdown: Callable[[], None]
    inflight: Inflight
    pins: Pins
    tool_calls: ToolCalls
    stopping: Callable[[], bool]
    log_control: LogControl = field(default_factory=LogControl)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    remarks: dict[str, dict[str, Any]] = field(default_factory=dict)
    readers: int = 0

    def __post_init__(self) -> None:
        self.disk = Disk(self.maker, self.planner, self.pool)
        self.trials = Trials(self.maker.registry, self.pool)
        self.newcomers = Newcomers(self.pool, self._forget_failed)
        self._watching = ExitStack()  # for as long as there is a service
        changed = self._watching.enter_context(self.pool.watch())
        self._watching.enter_context(self.inflight.watch(changed))
        self.looks = Looks(self.models, self.requests, changed)
        self._warnings: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return urlsplit(self.url).port or 80

    async def status(self) -> dict[str, Any]:
        """The daemon, its engine binary and all models."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "url": self.url,
            "started_at": self.started_at,
            "stopping": self.stopping(),
            "config": self.reloader.status(),
            "engine": await self._engine(),
            "models": self.models(),
        }

    async def devices(self, *, again: bool) -> dict[str, Any]:
        """What the machine has; `again` asks everything anew, also what failed a short while ago."""
        sight = await self.planner.look(again=again)
        return as_json(sight.machine, sight.budgets)

    async def plan(self, asked: Asked) -> dict[str, Any]:
        """Where the model of a load target would go now, with these options; nothing is loaded or remembered.

        Engines of the model itself count as gone, as they would be when it is loaded anew.
        """
        return await planned(self.maker, self.planner, asked, self.pool.residents, self.pins)

    async def estimate(self, target: str, options: Mapping[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
        """What an engine would allocate for a load target with these options of llama-server, and its own defaults.

        Of several contexts a list. Raises ModelNotFound, ModelFileError, InvalidRequest, EstimateRefused.
        """
        answer = await entry_for(self.maker, self.planner, Asked(target), self.pool.residents)
        known = await self.maker.glance(answer.entry)
        return await self.planner.aside(partial(estimates_json, known.subject.spec, options))

    def models(self) -> list[dict[str, Any]]:
        """Every model's status."""
        return [self._model(entry) for entry in self.maker.registry]

    def model(self, name: str) -> dict[str, Any]:
        """One model's status; raises ModelNotFound."""
        return self._model(self.maker.registry.find(name))

    async def ask_load(self, asked: Asked, *, at_once: bool = False) -> str:
        """Want the model of a load target loaded; its id.

        A loaded model whose options change is drained and started again; options that cannot be are refused before,
        and those that turn out to be what a load fails for are taken back.
        Whether a model of the hub fits that was named and is not here is found out before its download begins, or,
        with `at_once`, meanwhile. Raises as `entry_for`.
        """
        answer = await entry_for(self.maker, self.planner, asked, self.pool.residents)
        self.maker.registry.check(answer.entry)
        try:
            return await self._want(asked, answer, at_once=at_once)
        finally:
            self._let_go_of_remark(answer.entry.id)

    async def _want(self, asked: Asked, answer: Answer, *, at_once: bool) -> str:
        entry = answer.entry
        elsewhere = entry.hub is not None and entry.path is None
        if not asked.keeps:
            await asyncio.to_thread(self.maker.check, entry.options, asked.extra_args)
            if not elsewhere:
                await check_startable(self.maker, self.planner, entry, self.pool.residents())
        self.remarks[entry.id] = {"note": answer.note, "variants": list(answer.table)}
        if elsewhere and not answer.table:
            if at_once:
                warning = asyncio.ensure_future(self._warn_if_it_can_be_read(entry))
                self._warnings.add(warning)
                warning.add_done_callback(self._warnings.discard)
            else:
                await self._warn(entry)
        if not self.pool.status(entry.id).engines:
            self.planner.forget(entry.id)
        before = self.trials.options_before(entry.id)
        is_new = entry.id not in self.maker.registry
        if is_new:
            self.make_place()
        self.pool.ask_load(entry.id, fresh=self.maker.registry.add(entry, keep=asked.keeps))
        if not asked.keeps:
            self.trials.begin(entry.id, before)
        if is_new:
            self.newcomers.begin(entry.id)
        return entry.id

    def make_place(self) -> None:
        """Forget the oldest models that loads added and that nobody uses, where there are too many.

        Every list tells of all models. Raises InvalidRequest where all are in use.
        """
        added = [entry.id for entry in self.maker.registry if not self.reloader.configures(entry.id)]
        surplus = len(added) + 1 - MOST_ADDED
        if surplus <= 0:
            return
        unused = [model for model in added if self._is_unused(model)]
        if len(unused) < surplus:
            raise InvalidRequest(
                f"Loads have added {len(added)} models, all in use; `unload` or `forget` some, or configure them."
            )
        for model in unused[:surplus]:
            self._drop(model, f"loads have added {MOST_ADDED} models after it.")

    def _is_unused(self, model: str) -> bool:
        status = self.pool.status(model)
        return not (status.engines or status.view.waiting or self.newcomers.is_loading(model))

    async def _warn(self, entry: ModelEntry) -> None:
        """Note what is to be said of a model that does not fit. Raises what reading its header does."""
        warning = await warning_for(self.maker, self.planner, entry, self.pool.residents())
        remark = self.remarks.get(entry.id, _NO_REMARK)
        self.remarks[entry.id] = {**remark, "note": " ".join(filter(None, (remark["note"], warning))) or None}
        self.pool.changed()

    async def _warn_if_it_can_be_read(self, entry: ModelEntry) -> None:
        with suppress(SupervisorError):  # the load will say it
            await self._warn(entry)
        self._let_go_of_remark(entry.id)

    def _let_go_of_remark(self, model: str) -> None:
        """What was to be said of a model that did not come, or went."""
        if model not in self.maker.registry:
            self.remarks.pop(model, None)

    async def loaded(self, model_id: str) -> dict[str, Any]:
        """The status once the load is over.

        Raises ModelLoadFailed with the reason, ModelDoesNotFit, CrashLoop, or LoadCancelled.
        """
        outcome = await self.pool.at_rest(model_id)
        if outcome.view.state is EngineState.READY:
            return self.model(model_id)
        failure = outcome.view.failure
        if failure is None:
            raise LoadCancelled("The load was called off: the model was unloaded or the daemon is stopping.")
        raise error_of(failure)

    async def unload(self, name: str, *, now: bool) -> dict[str, Any]:
        """Unload and wait until the process is gone; the next load is by the configured options."""
        entry = self.maker.registry.find(name)
        self.maker.registry.set_options(entry.id, None)
        await self.pool.unload(entry.id, now=now)
        return self.model(entry.id)

    def ask_unload(self, name: str) -> None:
        """Unload after the running requests; returns at once."""
        entry = self.maker.registry.find(name)
        self.maker.registry.set_options(entry.id, None)
        self.pool.ask_unload(entry.id)

    def forget(self, name: str) -> dict[str, Any]:
        """Drop a model that a load added; its status as it was. Its files stay.

        Raises ModelNotFound, InvalidRequest for one of the configuration, ModelInUse for one that has an engine.
        """
        entry = self.maker.registry.find(name)
        if self.reloader.configures(entry.id):
            raise InvalidRequest(
                f"'{entry.id}' is configured or built in; take it out of the configuration, or of models_dir.",
                param="model",
            )
        if self.pool.status(entry.id).engines:
            raise ModelInUse(f"{entry.id} is loaded; unload it first.", param="model")
        was = self.model(entry.id)
        self._drop(entry.id, f"it was forgotten by `forget {entry.id}`.")
        return was

    def _forget_failed(self, model: str, reason: str) -> None:
        if model in self.maker.registry and not self.reloader.configures(model):
            self._drop(model, f"it could not be loaded, and was forgotten ({reason.rstrip('.')}).")

    def _drop(self, model: str, why: str) -> None:
        untold = self.maker.registry.forget(model, why)
        if untold is not None:
            self.maker.forget(untold)
        self.remarks.pop(model, None)
        self.pins.forget(model)
        self.planner.forget(model)
        self.pool.changed()

    def pin(self, name: str, *, pinned: bool) -> dict[str, Any]:
        """Keep the model's engines from leaving for idleness or for others' room, or let them; the status."""
        entry = self.maker.registry.find(name)
        self.pins.set(entry.id, pinned)
        self.pool.policies_changed()
        return self.model(entry.id)

    def requests(self) -> list[dict[str, Any]]:
        """Every request in flight, the oldest first."""
        return [self.request(one) for one in self.inflight]

    def request(self, one: InflightRequest) -> dict[str, Any]:
        """One request in flight (docs/rest.md)."""
        return {
            "id": one.id,
            "model": one.model,
            "engine": one.engine,
            "path": one.path,
            "since": self.to_epoch(one.since),
            "state": "waiting" if one.engine is None else "running",
            "stream": one.stream,
        }

    def log(self, model: str | None) -> OutputLog:
        """The log of a model's engines, or the daemon's own; raises ModelNotFound."""
        if model is None:
            return self.own_log
        if model not in self.maker.registry and self.maker.has_log(model):
            return self.maker.log(model)  # it failed, and was forgotten
        return self.maker.log(self.maker.registry.find(model).id)

    def follow(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """A model's status now and after every change, also once it is forgotten; raises ModelNotFound."""
        return self._followed(self.maker.registry.find(name))

    async def _followed(self, entry: ModelEntry) -> AsyncIterator[dict[str, Any]]:
        async with aclosing(self.pool.follow(entry.id)) as changes:
            async for _ in changes:
                registry = self.maker.registry
                entry = registry.find(entry.id) if entry.id in registry else entry
                yield self._model(entry)

    def _model(self, entry: ModelEntry) -> dict[str, Any]:
        download = self.maker.fetcher.progress.get(entry.id)
        pinned = self.pins(entry.id).pinned
        status = model_status(entry, self.pool.status(entry.id), pinned, self.to_epoch, download)
        status |= self.remarks.get(entry.id, _NO_REMARK)
        return status | {"detours": list(self.planner.fallback(entry).steps)}

    async def _engine(self) -> dict[str, Any] | None:
        try:
            binary, known = await asyncio.to_thread(self.maker.binary)
        except (EngineNotFound, EngineUnusable):
            return None
        return {"path": str(binary.path), "source": binary.source, "build": known.build}


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service)]
