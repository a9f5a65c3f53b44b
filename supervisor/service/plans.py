"""Plans and estimates that somebody asks for: nothing is loaded or remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from supervisor.core.devices.describe import as_json, problems_json
from supervisor.core.history.records import Spent
from supervisor.core.mlx.settings import FUSED
from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Place, Resident
from supervisor.core.schedule import ModelPolicy, barred_by, refusal
from supervisor.engines.kind import Planning, Read
from supervisor.engines.kinds import Parts
from supervisor.errors import EstimateRefused, ModelDoesNotFit, SupervisorError, file_refused
from supervisor.planning.estimates import estimates_json
from supervisor.planning.known import with_header
from supervisor.planning.lookout import Lookout, Sight
from supervisor.planning.mlx_estimates import mlx_estimates_json
from supervisor.planning.planner import refused
from supervisor.pool.living import Living
from supervisor.service.resolve import Asked, Resolver

Answered = Callable[[str], Awaitable[Sequence[Spent]]]
"""Says what the newest requests of a model took, newest first."""


async def nothing_answered(model: str) -> Sequence[Spent]:
    """Return nothing: there is no history."""
    return ()


@dataclass(frozen=True)
class Plans:
    """Says where models would go.

    Attributes:
        living: the engines there are. Those of the model itself count as gone, as they would be when it is loaded anew.
        policy_of: what holds for a model now, pinned by people included.
        answered: says what requests of a model took, by which its speed is foretold.
    """

    resolver: Resolver
    kinds: Parts[Planning]
    lookout: Lookout
    living: Living
    policy_of: Callable[[str], ModelPolicy]
    answered: Answered = nothing_answered

    async def devices(self, *, again: bool) -> dict[str, object]:
        """Return the machine's devices; `again` asks everything anew, even what failed a short while ago."""
        sight = await self.lookout.look(self.living, again=again)
        return as_json(sight.machine, sight.budgets)

    async def estimate(self, target: str, options: Mapping[str, Any]) -> dict[str, object] | list[dict[str, object]]:
        """Estimate what an engine would allocate for a load target with these options, by llama-server's names.

        Of several contexts a list. Raises ModelNotFound, ModelFileError, InvalidRequest, EstimateRefused.
        """
        mlx = await self.resolver.mlx(target)
        if mlx is not None:
            return await self.lookout.aside(partial(mlx_estimates_json, mlx.facts, options, fused=FUSED))
        answer = await self.resolver.resolve(Asked(target))
        known = with_header(await self._glance(answer.entry))
        sight = await self.lookout.look(self.living)
        backend = ",".join(sorted({device.backend for device in sight.machine.devices}))
        return await self.lookout.aside(partial(estimates_json, known.info.spec, options, backend))

    async def plan(self, asked: Asked) -> dict[str, object]:
        """Plan where the model of a load target would go now, with these options (docs/rest.md).

        Raises ModelNotFound, ModelFileError, EstimateRefused, InvalidRequest, OptionNotSupported and their like.
        """
        answer = await self.resolver.resolve(asked)
        entry = answer.entry
        if not asked.keeps:
            await asyncio.to_thread(self.kinds.of(entry).check, entry, asked.extra_args)
        known = await self._glance(entry)
        sight = await self.lookout.look(self.living)
        others = self._others(entry)
        leaving = barred_by(self.policy_of, entry.id, others)
        never = next((one for one in leaving if self.policy_of(one.model).pinned), None)
        if never is None:
            makers = Makers(self.kinds.of(entry), await self.answered(entry.id))
            found = await self.lookout.aside(partial(planned_json, makers, sight, known, others, leaving))
        else:
            message = refusal(entry.id, never.model).message
            found = DoesNotFit(entry.id, later=True, message=message, blockers=(never.engine,)).to_json()
            found |= {"blocking_models": [never.model]}
        variants = [asdict(one) for one in answer.table]
        on_disk = known.entry.hub is None or known.entry.path is not None
        told = {"problems": problems_json(sight.machine), "variants": variants, "note": answer.note}
        return found | {"on_disk": on_disk} | told

    async def warning(self, entry: ModelEntry) -> str | None:
        """Return a warning for a model that was asked for by name and does not fit, before it is downloaded."""
        plan = await self._plan_of(await self._glance(entry))
        return " ".join((plan.message, *plan.hints)) if isinstance(plan, DoesNotFit) else None

    async def check_startable(self, entry: ModelEntry) -> None:
        """Check that an engine with the entry's options could be here if all that may leave did; nothing changes.

        Raises ModelLoadFailed for options that no engine starts with, ModelFileError for a file that none serves,
        ModelDoesNotFit with the numbers, InvalidRequest for options that cannot be planned. What cannot be read is for
        the load to say.
        """
        try:
            known = await self._glance(entry)
        except SupervisorError:
            return
        plan = await self._plan_of(known)
        if not isinstance(plan, DoesNotFit) or plan.later:
            return
        if plan.refusal is not None:
            raise refused(plan.refusal)
        raise ModelDoesNotFit(" ".join((plan.message, *plan.hints)))

    async def _glance(self, entry: ModelEntry) -> Read:
        return await self.kinds.of(entry).glance(entry, self.living)

    async def _plan_of(self, known: Read) -> Place | DoesNotFit:
        sight = await self.lookout.look(self.living)
        others = self._others(known.entry)
        found, _ = await self.lookout.aside(partial(self.kinds.of(known.entry).plan, known, sight, others))
        return found

    def _others(self, entry: ModelEntry) -> list[Resident]:
        return [one for one in self.living.residents() if one.model != entry.id]


@dataclass(frozen=True)
class Makers:
    """Those who say what a placement means: the kind of the model, and what requests of it took here, newest first."""

    kind: Planning
    answered: Sequence[Spent] = ()


def planned_json(
    makers: Makers,
    sight: Sight,
    known: Read,
    residents: Sequence[Resident],
    leaving: Collection[Resident] = (),
) -> dict[str, object]:
    """The placement or the refusal (docs/rest.md): with the models to evict, and what the engine would be given.

    `leaving`: residents that have to leave however much room there is.

    Raises InvalidRequest, OptionNotSupported; EstimateRefused where the engine would not start whatever the memory.
    """
    found, _ = makers.kind.plan(known, sight, [one for one in residents if one not in leaving])
    if isinstance(found, DoesNotFit) and found.refusal is not None:
        code, message = found.refusal.code, found.refusal.message
        raise file_refused(code, message) or EstimateRefused(code, message)
    models = {resident.engine: resident.model for resident in residents}
    if isinstance(found, DoesNotFit):
        return found.to_json() | {"blocking_models": [models[engine] for engine in found.blockers]}
    return found.to_json() | {
        "evict": [*(one.engine for one in leaving), *found.evict],
        "evict_models": [*(one.model for one in leaving), *(models[engine] for engine in found.evict)],
        **makers.kind.told(known, sight, found, makers.answered),
    }
