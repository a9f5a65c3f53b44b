"""Loads and unloads that people ask for: from a target to a model that the pool wants loaded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.engines.kind import Planning
from supervisor.engines.kinds import Parts
from supervisor.errors import LoadCancelled, SupervisorError
from supervisor.planning.planner import Planner
from supervisor.pool.pool import Pool, error_of
from supervisor.service.added import Added
from supervisor.service.plans import Plans
from supervisor.service.remarks import Remarks
from supervisor.service.resolve import Answer, Asked, Resolver
from supervisor.service.status import ModelStatus, Remark
from supervisor.service.statuses import Statuses
from supervisor.service.trials import Trials


@dataclass(frozen=True)
class Loads:
    """A load goes one way: what is meant, whether it can be, what is to be said of it, and then it is wanted."""

    registry: Registry
    pool: Pool
    resolver: Resolver
    plans: Plans
    kinds: Parts[Planning]
    planner: Planner
    remarks: Remarks
    trials: Trials
    added: Added
    statuses: Statuses
    _warnings: set[asyncio.Task[None]] = field(default_factory=set)

    async def ask(self, asked: Asked, *, at_once: bool = False) -> str:
        """Want the model of a load target loaded; its id.

        A loaded model whose options change is drained and started again; options that cannot be are refused before,
        and those that turn out to be what a load fails for are taken back.
        Whether a model of the hub fits that was named and is not here is found out before its download begins, or,
        with `at_once`, meanwhile. Raises as `Resolver.resolve`.
        """
        answer = await self.resolver.resolve(asked)
        self.registry.check(answer.entry)
        try:
            await self._check(asked, answer.entry)
            await self._remark(answer, at_once=at_once)
            self._want(asked, answer.entry)
        finally:
            self._let_go_of_remark(answer.entry.id)
        return answer.entry.id

    async def over(self, model: str) -> ModelStatus:
        """The status once the load is over.

        Raises ModelLoadFailed with the reason, ModelDoesNotFit, CrashLoop, or LoadCancelled.
        """
        outcome = await self.pool.at_rest(model)
        if outcome.view.state is EngineState.READY:
            return self.statuses.of(model)
        failure = outcome.view.failure
        if failure is None:
            raise LoadCancelled("The load was called off: the model was unloaded or the daemon is stopping.")
        raise error_of(failure)

    async def unload(self, name: str, *, now: bool) -> ModelStatus:
        """Unload and wait until the process is gone; the next load is by the configured options."""
        entry = self.registry.find(name)
        self.registry.set_options(entry.id, None)
        await self.pool.unload(entry.id, now=now)
        return self.statuses.of(entry.id)

    def ask_unload(self, name: str) -> None:
        """Unload after the running requests; returns at once."""
        entry = self.registry.find(name)
        self.registry.set_options(entry.id, None)
        self.pool.ask_unload(entry.id)

    async def _check(self, asked: Asked, entry: ModelEntry) -> None:
        """Refuse options that cannot be."""
        if asked.keeps:
            return
        await asyncio.to_thread(self.kinds.of(entry).check, entry, asked.extra_args)
        if not _is_elsewhere(entry):
            await self.plans.check_startable(entry)

    async def _remark(self, answer: Answer, *, at_once: bool) -> None:
        """Note what is to be said of the model."""
        entry = answer.entry
        self.remarks.set(entry.id, Remark(answer.note, answer.table))
        if not _is_elsewhere(entry) or answer.table:
            return
        if at_once:
            warning = asyncio.ensure_future(self._warn_if_it_can_be_read(entry))
            self._warnings.add(warning)
            warning.add_done_callback(self._warnings.discard)
        else:
            await self._warn(entry)

    def _want(self, asked: Asked, entry: ModelEntry) -> None:
        """Hold the model and tell the pool. No await from here on: nobody sees half of it."""
        if not self.pool.status(entry.id).engines:
            self.planner.forget(entry.id)
        before = self.trials.options_before(entry.id)
        is_new = entry.id not in self.registry
        if is_new:
            self.added.make_place()
        self.pool.ask_load(entry.id, fresh=self.registry.add(entry, keep=asked.keeps))
        if not asked.keeps:
            self.trials.begin(entry.id, before)
        if is_new:
            self.added.begin(entry.id)

    async def _warn(self, entry: ModelEntry) -> None:
        """Note what is to be said of a model that does not fit. Raises what reading its header does."""
        self.remarks.add(entry.id, await self.plans.warning(entry))
        self.pool.changed()

    async def _warn_if_it_can_be_read(self, entry: ModelEntry) -> None:
        with suppress(SupervisorError):  # the load will say it
            await self._warn(entry)
        self._let_go_of_remark(entry.id)

    def _let_go_of_remark(self, model: str) -> None:
        """Drop the remark on a model that did not come, or that went."""
        if model not in self.registry:
            self.remarks.forget(model)


def _is_elsewhere(entry: ModelEntry) -> bool:
    """Return whether the model has to be downloaded first, as far as anybody has looked."""
    return entry.hub is not None and entry.path is None
