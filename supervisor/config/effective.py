"""Compute the effective settings of a model: its own over the defaults, and the groups it is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from supervisor.config.management import FilterSettings, GroupSettings
from supervisor.config.settings import DefaultSettings, ModelSettings, Settings
from supervisor.core.options import LaunchOptions, options_of
from supervisor.core.schedule import ModelPolicy

_Model = TypeVar("_Model", bound=DefaultSettings)
_MERGED = tuple(row.name for row in options_of(LaunchOptions) if isinstance(row.default, Mapping))
"""Mappings of which the defaults' entries stay unless the model has its own."""


def effective_models(settings: Settings) -> dict[str, ModelSettings]:
    """Return the models of the file with the defaults applied; names and order as in the file."""
    return {name: with_defaults(settings.defaults, model) for name, model in settings.models.items()}


def with_defaults(defaults: DefaultSettings, model: _Model) -> _Model:
    """Return the settings of a model, or of others' defaults, over these defaults.

    Its own values count, null included; mappings are merged key by key.
    """
    update: dict[str, object] = {
        name: getattr(defaults, name) for name in defaults.model_fields_set if name not in model.model_fields_set
    }
    for name in (*_MERGED, "sampling"):
        update[name] = {**getattr(defaults, name), **getattr(model, name)}
    update["filters"] = _filters(defaults.filters, model.filters)
    return model.model_copy(update=update)


def policies(
    models: Mapping[str, ModelSettings], groups: Iterable[tuple[str, GroupSettings]]
) -> dict[str, ModelPolicy]:
    """Return the scheduler's policies by model; `models` are effective ones."""
    within: dict[str, set[str]] = {}
    alone: set[str] = set()
    for name, group in groups:
        for member in group.members:
            if group.rule == "alone":
                alone.add(member)
            else:
                within.setdefault(member, set()).add(name)
    return {name: model.policy(frozenset(within.get(name, ())), alone=name in alone) for name, model in models.items()}


def _filters(defaults: FilterSettings, own: FilterSettings) -> FilterSettings:
    strip = dict.fromkeys((*defaults.strip, *own.strip))
    return FilterSettings(set={**defaults.set, **own.set}, strip=tuple(strip))
