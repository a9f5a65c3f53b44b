"""Plans and estimates that somebody asks for: nothing is loaded or remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from supervisor.core.devices.describe import as_json, problems_json
from supervisor.core.history.records import Spent
from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Placement, Resident
from supervisor.core.schedule import ModelPolicy, barred_by, refusal
from supervisor.errors import EstimateRefused, ModelDoesNotFit, SupervisorError, file_refused
from supervisor.llamacpp.program import Program
from supervisor.planning.estimates import estimates_json
from supervisor.planning.known import Known
from supervisor.planning.lookout import Lookout, Sight
from supervisor.planning.planner import refused
from supervisor.planning.speeds import Foreteller
from supervisor.pool.living import Living
from supervisor.service.catalogue import Catalogue
from supervisor.service.launcher import Commands
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
        foreteller: says how fast it would be, by what requests `answered` took.
    """

    resolver: Resolver
    catalogue: Catalogue
    lookout: Lookout
    program: Program
    commands: Commands
    living: Living
    policy_of: Callable[[str], ModelPolicy]
    foreteller: Foreteller
    answered: Answered = nothing_answered

    async def devices(self, *, again: bool) -> dict[str, object]:
        """Return the machine's devices; `again` asks everything anew, even what failed a short while ago."""
        sight = await self.lookout.look(self.living, again=again)
        return as_json(sight.machine, sight.budgets)

    async def estimate(self, target: str, options: Mapping[str, Any]) -> dict[str, object] | list[dict[str, object]]:
        """Estimate what an engine would allocate for a load target with these options, by llama-server's names.

        Of several contexts a list. Raises ModelNotFound, ModelFileError, InvalidRequest, EstimateRefused.
        """
        answer = await self.resolver.resolve(Asked(target))
        known = await self.catalogue.glance(answer.entry, self.living)
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
            await asyncio.to_thread(self.program.check, entry.options, asked.extra_args)
        known = await self.catalogue.glance(entry, self.living)
        sight = await self.lookout.look(self.living)
        others = self._others(entry)
        leaving = barred_by(self.policy_of, entry.id, others)
        never = next((one for one in leaving if self.policy_of(one.model).pinned), None)
        if never is None:
            makers = Makers(self.commands, self.foreteller, await self.answered(entry.id))
            found = await self.lookout.aside(partial(planned_json, makers, sight, known, others, leaving))
        else:
            message = refusal(entry.id, never.model).message
            found = DoesNotFit(entry.id, later=True, message=message, blockers=(never.engine,)).to_json()
            found |= {"blocking_models": [never.model]}
        variants = [asdict(one) for one in answer.table]
        return found | {"problems": problems_json(sight.machine), "variants": variants, "note": answer.note}

    async def warning(self, entry: ModelEntry) -> str | None:
        """Return a warning for a model that was asked for by name and does not fit, before it is downloaded."""
        plan = await self._plan_of(await self.catalogue.glance(entry, self.living))
        return " ".join((plan.message, *plan.hints)) if isinstance(plan, DoesNotFit) else None

    async def check_startable(self, entry: ModelEntry) -> None:
        """Check that an engine with the entry's options could be here if all that may leave did; nothing changes.

        Raises ModelLoadFailed for options that no engine starts with, ModelFileError for a file that none serves,
        ModelDoesNotFit with the numbers, InvalidRequest for options that cannot be planned. What cannot be read is for
        the load to say.
        """
        try:
            known = await self.catalogue.glance(entry, self.living)
        except SupervisorError:
            return
        plan = await self._plan_of(known)
        if not isinstance(plan, DoesNotFit) or plan.later:
            return
        if plan.refusal is not None:
            raise refused(plan.refusal)
        raise ModelDoesNotFit(" ".join((plan.message, *plan.hints)))

    async def _plan_of(self, known: Known) -> Placement | DoesNotFit:
        sight = await self.lookout.look(self.living)
        others = self._others(known.entry)
        return await self.lookout.aside(partial(sight.decide, known, known.entry.options, others))

    def _others(self, entry: ModelEntry) -> list[Resident]:
        return [one for one in self.living.residents() if one.model != entry.id]


@dataclass(frozen=True)
class Makers:
    """Those who say what a placement means: the command, and the speed.

    `answered`: what requests of the model took here, newest first.
    """

    commands: Commands
    foreteller: Foreteller
    answered: Sequence[Spent] = ()


def planned_json(
    makers: Makers,
    sight: Sight,
    known: Known,
    residents: Sequence[Resident],
    leaving: Collection[Resident] = (),
) -> dict[str, object]:
    """The placement or the refusal (docs/rest.md): with the models to evict, and what llama-server would be given.

    `leaving`: residents that have to leave however much room there is.

    Raises InvalidRequest, OptionNotSupported; EstimateRefused where the engine would not start whatever the memory.
    """
    found = sight.decide(known, known.entry.options, [one for one in residents if one not in leaving])
    if isinstance(found, DoesNotFit) and found.refusal is not None:
        code, message = found.refusal.code, found.refusal.message
        raise file_refused(code, message) or EstimateRefused(code, message)
    models = {resident.engine: resident.model for resident in residents}
    if not isinstance(found, Placement):
        return found.to_json() | {"blocking_models": [models[engine] for engine in found.blockers]}
    placed = sight.placed(found)
    speed = makers.foreteller.speed(known.info.spec, found, sight.machine, known.engine, makers.answered)
    return found.to_json() | {
        "evict": [*(one.engine for one in leaving), *found.evict],
        "evict_models": [*(one.model for one in leaving), *(models[engine] for engine in found.evict)],
        "arguments": list(makers.commands.arguments(known, placed)),
        "env": dict(placed.visible_env),
        "speed": speed.to_json() if speed else None,
    }
