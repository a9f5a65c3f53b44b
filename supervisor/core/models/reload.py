"""Replace one configuration by another: which models there are then, and what changes for which of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.core.models.registry import ModelEntry, Registry


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids, in the order of the registry.

    Attributes:
        relaunched: an engine of what it was is no engine of what it is.
        adjusted: something else is set for it: its policy, filters or aliases.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    relaunched: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()


def reconcile(before: Registry, after: Registry, current: Registry) -> tuple[Registry, Changes]:
    """Return the models from now on. Raise ModelIdTaken where two have the same name.

    A model that the configuration launches as before keeps what people have changed since; one that people added stays,
    unless the configuration now has its id, and has the new defaults once it is unloaded.

    Args:
        before, after: what the old and the new configuration say.
        current: what there is.
    """
    old = {entry.id: entry for entry in before}
    here = {entry.id: entry for entry in current}
    configured = [_merged(entry, old.get(entry.id), here.get(entry.id)) for entry in after]
    names = {entry.id for entry in configured}
    added_by_people = [
        replace(entry, configured=after.defaults.options).loaded_with(entry.options)
        for entry in here.values()
        if entry.id not in names and entry.id not in old
    ]
    result = Registry((*configured, *added_by_people), after.defaults)
    both = [(here[entry.id], entry) for entry in result if entry.id in here]
    return result, Changes(
        added=tuple(entry.id for entry in configured if entry.id not in here),
        removed=tuple(entry.id for entry in here.values() if entry.id not in names and entry.id in old),
        relaunched=tuple(now.id for was, now in both if not now.same_launch(was)),
        adjusted=tuple(now.id for was, now in both if now.same_launch(was) and now != was),
    )


def _merged(wanted: ModelEntry, before: ModelEntry | None, current: ModelEntry | None) -> ModelEntry:
    """Return the wanted entry, with the present options where the configuration did not change the launch."""
    if current is None or current.origin != wanted.origin:
        return wanted
    here = replace(wanted, path=current.path)  # where one of the hub was found
    return here.loaded_with(current.options) if before is not None and wanted.same_launch(before) else here
