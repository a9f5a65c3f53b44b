"""Of a repository without a quantisation: the best of its variants that fits here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Placement, Resident
from supervisor.core.repository import Assessment, Preference, Variant, best, listing, rank
from supervisor.errors import DiskFull, ModelDoesNotFit, SupervisorError
from supervisor.hub.models import Chosen, HubModels, Lookup
from supervisor.hub.threads import ask_hub
from supervisor.models.fetch import wants_projector
from supervisor.planning.known import Known
from supervisor.planning.lookout import Lookout, Sight
from supervisor.planning.speeds import Foreteller
from supervisor.pool.living import Living
from supervisor.service.reading import Reading

_HOST = "CPU"
_DEPTH = 4096  # tokens before those whose speed counts, if the context is as long
_ELSEWHERE = 10.0  # how much faster all on devices is guessed to be, until the header is read


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

    def __init__(self, hub: HubModels, reading: Reading, lookout: Lookout, foreteller: Foreteller) -> None:
        self._hub = hub
        self._reading = reading
        self._lookout = lookout
        self._foreteller = foreteller
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

    async def pick(
        self, candidates: Sequence[Candidate], living: Living, prefer: Preference | None = None
    ) -> tuple[Candidate, list[Assessment]]:
        """The best, with how each would do. Raises DiskFull, ModelDoesNotFit."""
        return await self._best(candidates, living.residents(), living, prefer)

    async def table(self, candidates: Sequence[Candidate], living: Living) -> list[Assessment]:
        """Assess every candidate."""
        judge = _Judge(await self._lookout.look(living), living.residents(), self._foreteller)
        table, _ = await self._forecasts(judge, candidates)
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
        self,
        candidates: Sequence[Candidate],
        residents: Sequence[Resident],
        living: Living,
        prefer: Preference | None = None,
    ) -> tuple[Candidate, list[Assessment]]:
        by_path = {one.variant.path: one for one in self._with_room(candidates)}
        judge = _Judge(await self._lookout.look(living), residents, self._foreteller)
        table, base = await self._forecasts(judge, tuple(by_path.values()))
        exact = {base.variant.path}
        while (choice := best(table, prefer)) is not None and choice.path not in exact:
            exact.add(choice.path)
            known = await self._read(by_path[choice.path])
            assessed = await self._lookout.aside(partial(judge.exactly, known, choice))
            table = [assessed if one.variant == choice else one for one in table]
        if choice is None:
            raise ModelDoesNotFit(f"No variant of {base.chosen.repository.id} fits here: {listing(table)}.")
        return by_path[choice.path], table

    async def _forecasts(self, judge: _Judge, candidates: Sequence[Candidate]) -> tuple[list[Assessment], Candidate]:
        """Assess every candidate; also return the one whose header was read."""
        base = _first(judge.sight, candidates)
        known = await self._read(base)
        variants = [one.variant for one in candidates]
        return await self._lookout.aside(lambda: judge.all(known, base.variant, variants)), base

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


@dataclass(frozen=True)
class _Judge:
    """Says how variants of a model would do here, beside these engines."""

    sight: Sight
    residents: Sequence[Resident]
    foreteller: Foreteller

    def all(self, known: Known, base: Variant, variants: Sequence[Variant]) -> list[Assessment]:
        """Assess all variants; `known` is what was read of `base`."""
        first = self.exactly(known, base)
        return [first if one == base else self._by_size(known, first, one) for one in variants]

    def exactly(self, known: Known, variant: Variant) -> Assessment:
        """Assess the variant that was read."""
        plan = self.sight.decide(known, known.entry.options, self.residents)
        if isinstance(plan, DoesNotFit):
            return Assessment(variant, False, note=plan.refusal.message if plan.refusal else "does not fit")
        on_host = bool(plan.n_cpu_moe) or any(part.name == _HOST and part.layers for part in plan.parts)
        spilled = on_host and self._on_devices(known)
        where = ", ".join([*plan.devices, *([_HOST] if spilled or not plan.devices else [])])
        contexts = plan.estimate.n_ctx_seq, plan.wanted_ctx
        return _assessment(variant, spilled, contexts, where, self._speed(known, plan))

    def _by_size(self, known: Known, base: Assessment, variant: Variant) -> Assessment:
        """Assess a variant of which only the size is known."""
        scale = variant.size or 1, base.variant.size or 1
        found = self.sight.forecast(known, self.residents, scale)
        if found.family is None:
            return Assessment(variant, False, note=found.reason)
        spilled = found.family != "devices" and self._on_devices(known)
        where = {"devices": "devices", "host": _HOST}.get(found.family, f"devices, {_HOST}")
        speed = base.speed * scale[1] / scale[0]
        if spilled != base.spilled:
            speed *= 1 / _ELSEWHERE if spilled else _ELSEWHERE
        return _assessment(variant, spilled, (found.request_ctx, found.wanted_ctx), where, speed)

    def _speed(self, known: Known, plan: Placement) -> float:
        speed = self.foreteller.speed(
            known.info.spec, plan, self.sight.machine, known.engine, known.entry.options.threads
        )
        if speed is None:
            return 0.0
        depths = speed.decode_tokens_per_second
        return depths[max(depth for depth in depths if depth <= _DEPTH)]

    def _on_devices(self, known: Known) -> bool:
        """Return whether there are devices, and the model may go on them."""
        return bool(self.sight.budgets.devices) and known.entry.options.device != ()


def _assessment(variant: Variant, spilled: bool, contexts: tuple[int, int], where: str, speed: float) -> Assessment:
    """`contexts`: what a request would have, and what is wanted."""
    context, wanted = contexts
    well = not spilled and context >= wanted
    note = f"{where}, context {context}"
    return Assessment(variant, True, well, note, context, speed, spilled)
