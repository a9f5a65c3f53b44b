"""The configuration that the nodes of a cluster share: what may stand in it, and how a node's own goes over it.

What is shared comes from another host. So it may say what a client with the scope `manage` may say in a load, and how
models are treated beside that. It names no program and no host, reaches no file but by a path that a load may name,
and sees no variable of a node's environment.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from supervisor.config.checks import Complaint
from supervisor.config.document import Loc
from supervisor.config.effective import with_defaults
from supervisor.config.expand import MACROS
from supervisor.config.load import Extent, Loaded, load_text
from supervisor.config.management import Management
from supervisor.config.options import launch_options
from supervisor.config.settings import DefaultSettings, ModelOptions, ModelSettings, Settings
from supervisor.config.sources import kind_of, path_of
from supervisor.core.cluster.messages import MOST_TEXT, Config
from supervisor.core.launch.extra import check_extra
from supervisor.errors import ConfigError, InvalidRequest

SECTIONS: Final = frozenset({"models", "defaults", "groups", MACROS})
"""What may stand in it at the top."""

_OF_ALL: Final = frozenset({*ModelOptions.model_fields, *Management.model_fields})
_OF_DEFAULTS: Final = frozenset(DefaultSettings.model_fields) - _OF_ALL
_OF_MODELS: Final = frozenset(ModelSettings.model_fields) - _OF_ALL - {"source", "file", "aliases"}
_OWN: Final = "is each node's own: write it into the configuration file of the node that it is for"
_REACHES: Final = "reaches the machine of a node: it may stand in that node's own configuration file only"
_PROGRAM: Final = "runs a program: it may stand in a node's own configuration file only"
_RELATIVE: Final = "would be another file on each node: give an absolute path, or a model of the hub (owner/repo:quant)"


@dataclass(frozen=True)
class Shared:
    """A version of the cluster's configuration that is valid here."""

    config: Config
    loaded: Loaded

    @property
    def number(self) -> int:
        """Number of the version."""
        return self.config.number


def shared_of(config: Config) -> Shared:
    """Return a version with its settings. Raises ConfigError."""
    return Shared(config, load_shared(config.text, f"version {config.number}"))


def load_shared(text: str, name: str) -> Loaded:
    """Return the settings of a cluster's configuration. What is valid here is valid on every node of this version.

    name: what faults call the text. Raises ConfigError.
    """
    if len(text.encode("utf-8", "replace")) > MOST_TEXT:
        raise ConfigError(f"{name} is larger than {MOST_TEXT >> 10} KiB, which a cluster's configuration may have.")
    return load_text(text, Path(name), None, extent=Extent(_refused, _complaints))


def over(own: Settings, shared: Settings, taken: Collection[str] = ()) -> Settings:
    """Return a node's own settings over those that all nodes share.

    A model's own entry counts as a whole, and so does a group's. Of the defaults each key counts by itself, and
    mappings among them are merged. A name that the node has given means what it means there.

    taken: names of models that the node has besides those of its settings.
    """
    names = {*own.models, *(alias for model in own.models.values() for alias in model.aliases), *taken}
    models = {
        name: model.model_copy(update={"aliases": tuple(one for one in model.aliases if one not in names)})
        for name, model in shared.models.items()
        if name not in names
    }
    merged = with_defaults(shared.defaults, own.defaults)
    defaults = {name: getattr(merged, name) for name in shared.defaults.model_fields_set}
    return own.model_copy(
        update={
            "models": {**own.models, **models},
            "groups": {**shared.groups, **own.groups},
            "defaults": own.defaults.model_copy(update=defaults),
        }
    )


def in_force(own: Loaded, shared: Shared | None, taken: Collection[str] = ()) -> Loaded:
    """Return what counts on a node, with the places of everything. Arguments as of `over`."""
    if shared is None:
        return own
    return replace(own, settings=over(own.settings, shared.loaded.settings, taken), shared=shared.loaded)


def _refused(data: Mapping[str, object]) -> Iterator[Complaint]:
    for name in data:
        if name not in SECTIONS and name in Settings.model_fields:
            yield Complaint((name,), _OWN, key=True)
    yield from _keys(data.get("defaults"), ("defaults",), _OF_DEFAULTS)
    models = data.get("models")
    for name, model in models.items() if isinstance(models, dict) else ():
        yield from _keys(model, ("models", name), _OF_MODELS)
        source = model.get("source") if isinstance(model, dict) else None
        if isinstance(source, str) and kind_of(source) == "engine":
            yield Complaint(("models", name, "source"), _PROGRAM)


def _keys(section: object, loc: Loc, refused: Collection[str]) -> Iterator[Complaint]:
    for key in section if isinstance(section, dict) else ():
        if key in refused:
            yield Complaint((*loc, key), _REACHES if key in _OF_DEFAULTS else _PROGRAM, key=True)


def _complaints(settings: Settings) -> Iterator[Complaint]:
    yield from _arguments(settings.defaults, ("defaults",))
    for name, model in settings.models.items():
        loc: Loc = ("models", name)
        yield from _arguments(model, loc)
        path = path_of(model)
        if path is not None and not os.path.isabs(path):
            yield Complaint((*loc, "source" if model.file is None else "file"), f"{path!r} {_RELATIVE}")


def _arguments(model: DefaultSettings, loc: Loc) -> Iterator[Complaint]:
    """Yield further arguments of llama-server that no client may give; those that nobody may are told anyway."""
    for number, argument in enumerate(launch_options(model).extra_args):
        told = _told(argument)
        if told is not None:
            yield Complaint((*loc, "extra_args", number), told)


def _told(argument: str) -> str | None:
    check = partial(check_extra, [argument], None)
    try:
        check()
    except InvalidRequest:
        return None
    try:
        check("client")
    except InvalidRequest as error:
        return error.message.replace("the configuration file", "a node's own configuration file")
    return None
