"""From what somebody asks for to a catalogue entry; of a repository without a quantisation, the best that fits here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from supervisor.config.options import launch_options
from supervisor.config.settings import ModelOptions
from supervisor.core.catalog import Assessment, HubReference, Variant, best, listing, rank
from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import ModelEntry
from supervisor.core.plan import DoesNotFit, Placement, Resident
from supervisor.errors import DiskFull, ModelDoesNotFit, SupervisorError, VariantNotFound
from supervisor.hub.models import Chosen, Lookup
from supervisor.hub.stores import ollama_blob
from supervisor.hub.threads import ask_hub
from supervisor.models.fetch import wants_projector
from supervisor.models.targets import known_entry, new_entry, resolve_target, with_options
from supervisor.planning.planner import Known, Planner, Sight, refused
from supervisor.service.launcher import EngineMaker

OLLAMA = "ollama:"
_HOST = "CPU"


@dataclass(frozen=True)
class Asked:
    """What to load or plan: `demo`, a path, a model of the hub, `ollama:NAME` or an id; its name; changed options.

    reset: those that earlier loads gave are dropped first.
    """

    target: str
    model_id: str | None = None
    options: ModelOptions | None = None
    reset: bool = False

    @property
    def keeps(self) -> bool:
        """Whether the options of a known model stay as they are."""
        return self.options is None and not self.reset

    @property
    def extra_args(self) -> tuple[str, ...]:
        """The further arguments that are asked for."""
        return launch_options(self.options).extra_args if self.options is not None else ()

    def of(self, entry: ModelEntry) -> ModelEntry:
        """The entry with the options that were asked for."""
        return with_options(entry.loaded_with(None) if self.reset else entry, self.options)


@dataclass(frozen=True)
class Answer:
    """The entry, not yet in the registry.

    Attributes:
        table: the variants there were to choose from, as JSON; empty where one was named.
        note: what has to be said.
    """

    entry: ModelEntry
    table: tuple[Mapping[str, Any], ...] = ()
    note: str | None = None


async def entry_for(
    maker: EngineMaker, planner: Planner, asked: Asked, residents: Callable[[], Sequence[Resident]]
) -> Answer:
    """The entry that was asked for, known or new.

    Raises as `resolve_target`, as `HubModels.look`, and ModelDoesNotFit or DiskFull where no variant of a repository
    can be taken.
    """
    hub = maker.fetcher.hub
    if asked.target.startswith(OLLAMA):
        asked = await asyncio.to_thread(_kept_by_ollama, hub.access.env, asked)
    reference = None if asked.target.startswith("/") else hub.parse(asked.target)
    known = None if reference is None else known_entry(maker.registry, asked.target)
    if reference is None or known is not None:
        return Answer(asked.of(await asyncio.to_thread(resolve_target, maker.registry, asked.target, asked.model_id)))
    named = reference.quant is not None or reference.path is not None
    here = await asyncio.to_thread(hub.on_disk, reference) if named else None
    if here is not None:
        return Answer(_entry(maker, here, asked))
    try:
        found = await ask_hub(hub.look, reference)
    except VariantNotFound as error:
        raise await _with_verdicts(maker, planner, asked, reference, residents(), error) from None
    if named:
        chosen = found.choice(found.candidates[0])
        return Answer(_entry(maker, chosen, asked), note=found.note)
    choice, table = await _choice(maker, planner, asked, found, residents()).pick()
    entry = _entry(maker, found.choice(choice), asked, alias=str(reference))
    return Answer(entry, tuple(_row(one, choice) for one in table), found.note)


async def with_variant(
    maker: EngineMaker, planner: Planner, residents: Callable[[], Sequence[Resident]], entry: ModelEntry
) -> ModelEntry:
    """The entry of a model whose configuration names a repository, with the variant that it takes.

    One that is on disk and fits comes before all that would be downloaded. Raises as `entry_for`.
    """
    hub = maker.fetcher.hub
    reference = hub.parse(entry.hub or "")
    if reference is None or reference.quant is not None or reference.path is not None:
        return entry
    others = [one for one in residents() if one.model != entry.id]

    def of(chosen: Chosen) -> ModelEntry:
        return replace(entry, hub=chosen.reference)

    async def best_of(found: Lookup) -> ModelEntry:
        choice, _ = await _Choice(maker, planner, found, others, of, entry.options).pick()
        return of(found.choice(choice))

    kept = await asyncio.to_thread(hub.kept, reference)
    if kept is not None:
        with suppress(SupervisorError):  # it does not fit, is damaged, or its projector is out of reach
            return await best_of(kept)
    return await best_of(await ask_hub(hub.look, reference))


def _choice(
    maker: EngineMaker, planner: Planner, asked: Asked, found: Lookup, residents: Sequence[Resident]
) -> _Choice:
    """For a model of which nothing is configured."""
    options = asked.of(new_entry(maker.registry, "", None)).options
    return _Choice(maker, planner, found, residents, lambda chosen: _entry(maker, chosen, asked), options)


def _kept_by_ollama(env: Mapping[str, str], asked: Asked) -> Asked:
    name = asked.target.removeprefix(OLLAMA)
    return replace(asked, target=str(ollama_blob(env, name)), model_id=asked.model_id or name.removesuffix(":latest"))


async def _with_verdicts(
    maker: EngineMaker,
    planner: Planner,
    asked: Asked,
    reference: HubReference,
    residents: Sequence[Resident],
    error: VariantNotFound,
) -> VariantNotFound:
    """The same error with a list that says what of it fits here, as far as that can be found out."""
    try:
        found = await ask_hub(maker.fetcher.hub.look, HubReference(reference.repo, revision=reference.revision))
        table, _ = await _choice(maker, planner, asked, found, residents).table(found.candidates)
    except SupervisorError:
        return error
    wanted = reference.path or reference.quant
    return VariantNotFound(f"{found.repository.id} has no '{wanted}'. It has: {listing(table)}.", param="target")


def _entry(maker: EngineMaker, chosen: Chosen, asked: Asked, alias: str | None = None) -> ModelEntry:
    known = maker.registry.by_hub(chosen.reference)
    if known is not None and asked.model_id in {None, known.id}:
        more = (alias,) if alias and alias not in {known.id, *known.aliases} else ()
        return asked.of(replace(known, aliases=(*known.aliases, *more)))
    name = asked.model_id or chosen.reference
    more = (alias,) if alias and alias != name else ()
    return asked.of(new_entry(maker.registry, name, chosen.reference, more))


@dataclass
class _Choice:
    """Chooses among the variants of a repository.

    One header is read; for the other variants the planner scales its weights. What is chosen is planned by its own
    header before it is taken.
    """

    maker: EngineMaker
    planner: Planner
    found: Lookup
    residents: Sequence[Resident]
    entry_of: Callable[[Chosen], ModelEntry]
    options: LaunchOptions
    sight: Sight = field(init=False)  # as of the last look

    async def table(self, variants: Sequence[Variant]) -> tuple[list[Assessment], Variant]:
        """How every variant would do, and the one whose header was read."""
        self.sight = await self.planner.look()
        base = self._first(variants)
        known = await self._read(base)
        return await self.planner.aside(lambda: [self._forecast(known, base, variant) for variant in variants]), base

    async def pick(self) -> tuple[Variant, list[Assessment]]:
        """The best, with the table. Raises DiskFull, ModelDoesNotFit."""
        table, base = await self.table(self._with_room())
        exact = {base.path}
        while (choice := best(table)) is not None and choice.path not in exact:
            exact.add(choice.path)
            known = await self._read(choice)
            assessed = await self.planner.aside(partial(self._assess, known, choice))
            table = [assessed if one.variant == choice else one for one in table]
        if choice is None:
            raise ModelDoesNotFit(f"No variant of {self.found.repository.id} fits here: {listing(table)}.")
        return choice, table

    def _with_room(self) -> list[Variant]:
        """The variants that the disk has room for. Raises DiskFull where there is none."""
        downloads = self.maker.fetcher.hub.downloads
        kept = []
        for variant in self.found.candidates:
            try:
                downloads.check_room(self.found.repository, self.found.choice(variant).files(vision=self._vision))
            except DiskFull as error:
                full = error
            else:
                kept.append(variant)
        if not kept:
            raise full
        return kept

    def _first(self, variants: Sequence[Variant]) -> Variant:
        """Whose header to read: the best of those whose files are smaller than all memory together."""
        budgets = self.sight.budgets
        room = budgets.host.usable_bytes + sum(device.usable_bytes for device in budgets.devices)
        small = [variant for variant in variants if (variant.size or 0) <= room]
        return min(small, key=lambda one: rank(one.quant)) if small else min(variants, key=lambda one: one.size or 0)

    @property
    def _vision(self) -> bool:
        return wants_projector(self.options)

    async def _read(self, variant: Variant) -> Known:
        entry = self.entry_of(self.found.choice(variant))
        subject = await ask_hub(self.maker.fetcher.of, entry, self.found.choice(variant))
        return await asyncio.to_thread(self.maker.known, entry, subject)

    def _forecast(self, known: Known, base: Variant, variant: Variant) -> Assessment:
        if variant == base:
            return self._assess(known, variant)
        found = self.sight.forecast(known, self.residents, (variant.size or 1, base.size or 1))
        if found.family is None:
            return Assessment(variant, False, note=found.reason)
        spilled = found.family != "devices" and self._on_devices
        where = {"devices": "devices", "host": _HOST}.get(found.family, f"devices, {_HOST}")
        return self._assessment(variant, spilled, (found.request_ctx, found.wanted_ctx), where)

    def _assess(self, known: Known, variant: Variant) -> Assessment:
        plan = self.sight.decide(known, known.entry.options, self.residents)
        if isinstance(plan, DoesNotFit):
            return Assessment(variant, False, note=plan.refusal.message if plan.refusal else "does not fit")
        on_host = bool(plan.n_cpu_moe) or any(part.name == _HOST and part.layers for part in plan.parts)
        spilled = on_host and self._on_devices
        where = ", ".join([*plan.devices, *([_HOST] if spilled or not plan.devices else [])])
        return self._assessment(variant, spilled, (plan.estimate.n_ctx_seq, plan.wanted_ctx), where)

    @staticmethod
    def _assessment(variant: Variant, spilled: bool, contexts: tuple[int, int], where: str) -> Assessment:
        """`contexts`: what a request would have, and what is wanted."""
        context, wanted = contexts
        return Assessment(variant, True, not spilled and context >= wanted, f"{where}, context {context}")

    @property
    def _on_devices(self) -> bool:
        """Whether there are devices to fill, and they may be."""
        return bool(self.sight.budgets.devices) and self.options.device != ()


def _row(one: Assessment, chosen: Variant) -> dict[str, Any]:
    variant = one.variant
    return {
        "name": variant.name,
        "size_bytes": variant.size,
        "fits": one.fits,
        "well": one.well,
        "note": one.note,
        "chosen": variant == chosen,
    }


async def warning_for(
    maker: EngineMaker, planner: Planner, entry: ModelEntry, residents: Sequence[Resident]
) -> str | None:
    """What to say of a model that somebody asked for by name and that does not fit, before it is downloaded."""
    plan = await _plan_of(planner, await maker.glance(entry), residents)
    return " ".join((plan.message, *plan.hints)) if isinstance(plan, DoesNotFit) else None


async def check_startable(
    maker: EngineMaker, planner: Planner, entry: ModelEntry, residents: Sequence[Resident]
) -> None:
    """Whether an engine with the entry's options could be here, if all that may leave did; before anything changes.

    Raises ModelLoadFailed for options that no engine starts with, ModelFileError for a file that none serves,
    ModelDoesNotFit with the numbers, InvalidRequest for options that cannot be planned. What cannot be read is for the
    load to say.
    """
    try:
        known = await maker.glance(entry)
    except SupervisorError:
        return
    plan = await _plan_of(planner, known, residents)
    if not isinstance(plan, DoesNotFit) or plan.later:
        return
    if plan.refusal is not None:
        raise refused(plan.refusal)
    raise ModelDoesNotFit(" ".join((plan.message, *plan.hints)))


async def _plan_of(planner: Planner, known: Known, residents: Sequence[Resident]) -> Placement | DoesNotFit:
    """Where it would go now; its own engines count as gone."""
    sight = await planner.look()
    others = [one for one in residents if one.model != known.entry.id]
    return await planner.aside(partial(sight.decide, known, known.entry.options, others))
