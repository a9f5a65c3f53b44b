"""From what somebody asks for to a catalogue entry."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.config.options import launch_options
from supervisor.config.settings import ModelOptions
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.repository import Assessment, HubReference, Preference, Variant, is_mlx, listing
from supervisor.engines.kinds import MLX, for_format
from supervisor.errors import InvalidRequest, SupervisorError, VariantNotFound
from supervisor.files.mlx_folder import MlxModel, is_mlx_folder, read_mlx
from supervisor.hub.models import Chosen, HubModels, Lookup
from supervisor.hub.stores import ollama_blob
from supervisor.hub.threads import ask_hub
from supervisor.models.targets import known_entry, new_entry, resolve_target, with_options
from supervisor.pool.living import Living
from supervisor.service.status import VariantShown
from supervisor.service.variants import Candidate, Variants

OLLAMA = "ollama:"


@dataclass(frozen=True)
class Asked:
    """What to load or plan: `demo`, a path, a model of the hub, `ollama:NAME` or an id; its name; changed options.

    reset: those that earlier loads gave are dropped first. prefer: what counts most among a repository's variants.
    """

    target: str
    model_id: str | None = None
    options: ModelOptions | None = None
    reset: bool = False
    prefer: Preference | None = None

    @property
    def keeps(self) -> bool:
        """True if the options of a known model stay as they are."""
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
        table: the variants there were to choose from; empty where one was named.
        note: what has to be said.
    """

    entry: ModelEntry
    table: tuple[VariantShown, ...] = ()
    note: str | None = None


class Resolver:
    """Knows what people mean. `living`: the engines beside which a variant of a repository has to fit."""

    def __init__(self, registry: Registry, hub: HubModels, variants: Variants, living: Living) -> None:
        self._registry = registry
        self._hub = hub
        self._variants = variants
        self._living = living

    async def resolve(self, asked: Asked) -> Answer:
        """The entry that was asked for, known or new.

        Raises as `resolve_target`, as `HubModels.look`, and ModelDoesNotFit or DiskFull where no variant of a
        repository can be taken.
        """
        if asked.target.startswith(OLLAMA):
            asked = await asyncio.to_thread(_kept_by_ollama, self._hub.access.env, asked)
        reference = None if asked.target.startswith("/") else self._hub.parse(asked.target)
        if asked.prefer is not None:
            return await self._preferred(asked, reference)
        if reference is None or known_entry(self._registry, asked.target) is not None:
            found = await asyncio.to_thread(resolve_target, self._registry, asked.target, asked.model_id)
            return Answer(asked.of(found))
        if reference.quant is not None or reference.path is not None:
            return await self._named(asked, reference)
        return await self._best(asked, reference)

    async def mlx(self, target: str) -> MlxModel | None:
        """Read a target that is a model for MLX, without a download; None for all others.

        Raises ModelFileError and its subclasses.
        """
        if target.startswith("/"):
            return await asyncio.to_thread(_in_folder, target)
        known = next((one for one in self._registry if target in {one.id, *one.aliases}), None)
        if known is not None and known.hub is None:
            return await asyncio.to_thread(_in_folder, known.path or "")
        reference = self._hub.parse(known.hub or "" if known else target)
        if reference is None or reference.path is not None:
            return None
        if (reference.quant or "").lower() != MLX and (known is not None or reference.quant is not None):
            return None
        return await ask_hub(self._mlx_of, reference)

    def _mlx_of(self, reference: HubReference) -> MlxModel | None:
        chosen = self._hub.on_disk(reference)
        if chosen is None:
            found = self._hub.look(reference)
            chosen = found.choice(found.candidates[0])
        return self._hub.mlx(chosen) if is_mlx(chosen.variant) else None

    async def _named(self, asked: Asked, reference: HubReference) -> Answer:
        """A variant that was named: on disk, else at the hub."""
        here = await asyncio.to_thread(self._hub.on_disk, reference)
        if here is not None:
            return Answer(self._entry(asked, here))
        try:
            found = await ask_hub(self._hub.look, reference)
        except VariantNotFound as error:
            raise await self._with_verdicts(asked, reference, error) from None
        return Answer(self._entry(asked, found.choice(found.candidates[0])), note=found.note)

    async def _preferred(self, asked: Asked, reference: HubReference | None) -> Answer:
        if reference is None or reference.quant is not None or reference.path is not None:
            raise InvalidRequest(
                f"prefer chooses among the variants of a repository (owner/repo), and '{asked.target}' is one model; "
                "leave it out.",
                param="prefer",
            )
        return await self._best(asked, reference)

    async def _best(self, asked: Asked, reference: HubReference) -> Answer:
        """The variant of a repository that is best here."""
        found = await ask_hub(self._hub.look, reference)
        if is_mlx(found.candidates[0]):  # the only one then
            chosen = found.choice(found.candidates[0])
            return Answer(self._entry(asked, chosen, alias=str(reference)), note=found.note)
        picked, table = await self._variants.pick(self._candidates(asked, found), self._living, asked.prefer)
        entry = self._entry(asked, picked.chosen, alias=str(reference))
        return Answer(entry, tuple(_row(one, picked.variant) for one in table), found.note)

    async def _with_verdicts(self, asked: Asked, reference: HubReference, error: VariantNotFound) -> VariantNotFound:
        """The same error with a list that says what of it fits here, as far as that can be found out."""
        try:
            found = await ask_hub(self._hub.look, HubReference(reference.repo, revision=reference.revision))
            table = await self._variants.table(self._candidates(asked, found), self._living)
        except SupervisorError:
            return error
        wanted = reference.path or reference.quant
        return VariantNotFound(f"{found.repository.id} has no '{wanted}'. It has: {listing(table)}.", param="target")

    def _candidates(self, asked: Asked, found: Lookup) -> list[Candidate]:
        choices = [found.choice(variant) for variant in found.candidates]
        return [Candidate(one, self._entry(asked, one)) for one in choices]

    def _entry(self, asked: Asked, chosen: Chosen, alias: str | None = None) -> ModelEntry:
        """The model that a variant is, or would be."""
        known = self._registry.by_hub(chosen.reference)
        if known is not None and asked.model_id in {None, known.id}:
            more = (alias,) if alias and alias not in {known.id, *known.aliases} else ()
            return asked.of(replace(known, aliases=(*known.aliases, *more)))
        name = asked.model_id or chosen.reference
        more = (alias,) if alias and alias != name else ()
        entry = new_entry(self._registry, name, chosen.reference, more)
        return asked.of(for_format(entry, MLX) if is_mlx(chosen.variant) else entry)


def _in_folder(path: str) -> MlxModel | None:
    return read_mlx(Path(path)) if is_mlx_folder(Path(path)) else None


def _kept_by_ollama(env: Mapping[str, str], asked: Asked) -> Asked:
    name = asked.target.removeprefix(OLLAMA)
    return replace(asked, target=str(ollama_blob(env, name)), model_id=asked.model_id or name.removesuffix(":latest"))


def _row(one: Assessment, chosen: Variant) -> VariantShown:
    variant = one.variant
    speed = float(f"{one.speed:.3g}") if one.speed else None
    return VariantShown(variant.name, variant.size, one.fits, one.well, one.note, variant == chosen, speed)
