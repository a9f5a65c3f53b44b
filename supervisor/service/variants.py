"""Of a repository without a quantisation: the best of its variants that fits here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Resident
from supervisor.core.repository import Assessment, Variant, best, listing, rank
from supervisor.errors import DiskFull, ModelDoesNotFit, SupervisorError
from supervisor.hub.models import Chosen, HubModels, Lookup
from supervisor.hub.threads import ask_hub
from supervisor.models.fetch import wants_projector
from supervisor.planning.known import Known
from supervisor.planning.lookout import Lookout, Sight
from supervisor.pool.living import Living
from supervisor.service.reading import Reading

_HOST = "CPU"


@dataclass(frozen=True)
class Candidate:
    """A variant, and the model that it would be."""

    chosen: Chosen
    entry: ModelEntry

    @property
    def variant(self) -> Variant:
        return self.chosen.variant

    @property
    def vision(self) -> bool:
        """True if the projector beside it would be used."""
        return wants_projector(self.entry.options)


class Variants:
    """Chooses. One header is read; for the other variants the planner scales its weights.

    What is chosen is planned by its own header before it is taken.
    """

    def __init__(self, hub: HubModels, reading: Reading, lookout: Lookout) -> None:
        self._hub = hub
        self._reading = reading
        self._lookout = lookout
        self._chosen: dict[tuple[str, str], str] = {}

    async def with_variant(self, entry: ModelEntry, living: Living) -> ModelEntry:
        """The entry of a model of the hub with the variant that it takes, the same one each time.

        One that is on disk and fits comes before all that would be downloaded. Raises as `HubModels.look` and `pick`.
        """
        if entry.hub is None:
            return entry
        key = entry.id, entry.hub
        if key not in self._chosen:
            self._chosen[key] = await self._reference(entry, entry.hub, living)
        return replace(entry, hub=self._chosen[key])

    def forget(self, model: str) -> None:
        """Choose again when it is asked for again."""
        self._chosen = {key: hub for key, hub in self._chosen.items() if key[0] != model}

    async def pick(self, candidates: Sequence[Candidate], living: Living) -> tuple[Candidate, list[Assessment]]:
        """The best, with how each would do. Raises DiskFull, ModelDoesNotFit."""
        return await self._best(candidates, living.residents(), living)

    async def table(self, candidates: Sequence[Candidate], living: Living) -> list[Assessment]:
        """Assess every candidate."""
        residents = living.residents()
        table, _ = await self._forecasts(await self._lookout.look(living), candidates, residents)
        return table

    async def _reference(self, entry: ModelEntry, hub: str, living: Living) -> str:
        reference = self._hub.parse(hub)
        if reference is None or reference.quant is not None or reference.path is not None:
            return hub
        others = [one for one in living.residents() if one.model != entry.id]
        kept = await asyncio.to_thread(self._hub.kept, reference)
        if kept is not None:
            with suppress(SupervisorError):  # it does not fit, is damaged, or its projector is out of reach
                return await self._best_of(kept, entry, others, living)
        return await self._best_of(await ask_hub(self._hub.look, reference), entry, others, living)

    async def _best_of(self, found: Lookup, entry: ModelEntry, others: Sequence[Resident], living: Living) -> str:
        choices = [found.choice(variant) for variant in found.candidates]
        candidates = [Candidate(one, replace(entry, hub=one.reference)) for one in choices]
        picked, _ = await self._best(candidates, others, living)
        return picked.chosen.reference

    async def _best(
        self, candidates: Sequence[Candidate], residents: Sequence[Resident], living: Living
    ) -> tuple[Candidate, list[Assessment]]:
        by_path = {one.variant.path: one for one in self._with_room(candidates)}
        sight = await self._lookout.look(living)
        table, base = await self._forecasts(sight, tuple(by_path.values()), residents)
        exact = {base.variant.path}
        while (choice := best(table)) is not None and choice.path not in exact:
            exact.add(choice.path)
            known = await self._read(by_path[choice.path])
            assessed = await self._lookout.aside(partial(_assess, sight, known, choice, residents))
            table = [assessed if one.variant == choice else one for one in table]
        if choice is None:
            raise ModelDoesNotFit(f"No variant of {base.chosen.repository.id} fits here: {listing(table)}.")
        return by_path[choice.path], table

    async def _forecasts(
        self, sight: Sight, candidates: Sequence[Candidate], residents: Sequence[Resident]
    ) -> tuple[list[Assessment], Candidate]:
        """Assess every candidate; also return the one whose header was read."""
        base = _first(sight, candidates)
        known = await self._read(base)
        found = partial(_forecast, sight, known, base.variant, residents)
        return await self._lookout.aside(lambda: [found(one.variant) for one in candidates]), base

    def _with_room(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that the disk has room for. Raises DiskFull where there is none."""
        kept = []
        for one in candidates:
            try:
                self._hub.downloads.check_room(one.chosen.repository, one.chosen.files(vision=one.vision))
            except DiskFull as error:
                full = error
            else:
                kept.append(one)
        if not kept:
            raise full
        return kept

    async def _read(self, candidate: Candidate) -> Known:
        return await self._reading.variant(candidate.entry, candidate.chosen)


def _first(sight: Sight, candidates: Sequence[Candidate]) -> Candidate:
    """Choose whose header to read: the best of those whose files are smaller than all memory together."""
    room = sight.budgets.host.usable_bytes + sum(device.usable_bytes for device in sight.budgets.devices)
    small = [one for one in candidates if (one.variant.size or 0) <= room]
    if small:
        return min(small, key=lambda one: rank(one.variant.quant))
    return min(candidates, key=lambda one: one.variant.size or 0)


def _forecast(sight: Sight, known: Known, base: Variant, residents: Sequence[Resident], variant: Variant) -> Assessment:
    if variant == base:
        return _assess(sight, known, variant, residents)
    found = sight.forecast(known, residents, (variant.size or 1, base.size or 1))
    if found.family is None:
        return Assessment(variant, False, note=found.reason)
    spilled = found.family != "devices" and _on_devices(sight, known)
    where = {"devices": "devices", "host": _HOST}.get(found.family, f"devices, {_HOST}")
    return _assessment(variant, spilled, (found.request_ctx, found.wanted_ctx), where)


def _assess(sight: Sight, known: Known, variant: Variant, residents: Sequence[Resident]) -> Assessment:
    plan = sight.decide(known, known.entry.options, residents)
    if isinstance(plan, DoesNotFit):
        return Assessment(variant, False, note=plan.refusal.message if plan.refusal else "does not fit")
    on_host = bool(plan.n_cpu_moe) or any(part.name == _HOST and part.layers for part in plan.parts)
    spilled = on_host and _on_devices(sight, known)
    where = ", ".join([*plan.devices, *([_HOST] if spilled or not plan.devices else [])])
    return _assessment(variant, spilled, (plan.estimate.n_ctx_seq, plan.wanted_ctx), where)


def _assessment(variant: Variant, spilled: bool, contexts: tuple[int, int], where: str) -> Assessment:
    """`contexts`: what a request would have, and what is wanted."""
    context, wanted = contexts
    return Assessment(variant, True, not spilled and context >= wanted, f"{where}, context {context}")


def _on_devices(sight: Sight, known: Known) -> bool:
    """True if there are devices, and the model may go on them."""
    return bool(sight.budgets.devices) and known.entry.options.device != ()
