"""The models of a configuration: those that it names, those in its folder, and the built-in one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import structlog

from supervisor.config.effective import effective_models, policies, with_defaults
from supervisor.config.load import Loaded
from supervisor.config.management import Management
from supervisor.config.options import chosen_from, launch_options
from supervisor.config.settings import ModelSettings, Settings
from supervisor.config.shared import Shared, in_force
from supervisor.config.sources import engine_of, is_demo, path_of, repo_of
from supervisor.core.models.filters import RequestFilters
from supervisor.core.models.registry import ModelDefaults, ModelEntry, Registry, Source
from supervisor.core.options import LaunchOptions, names_file, options_of
from supervisor.core.params.settings import RequestSettings
from supervisor.core.schedule import ModelPolicy
from supervisor.core.toolcalls.mode import ToolMode
from supervisor.engines.kinds import MLX, for_format
from supervisor.files.folder import FolderModel, look_inside, passed_over, scan
from supervisor.files.mlx_folder import is_mlx_folder

_log = structlog.get_logger()

DEMO_ID = "demo"


def configured_models(settings: Settings) -> Registry:
    """Return the models of the configuration and of its folder, and the built-in one."""
    models = effective_models(settings)
    found = _found(settings.models_dir)
    taken = {*models, *(alias for model in models.values() for alias in model.aliases)}
    plain = {name: with_defaults(settings.defaults, ModelSettings()) for name in found if name not in taken}
    kept_to = policies({**models, **plain}, settings.groups.items())
    entries = [_entry(settings, name, model, found.get(name), kept_to[name]) for name, model in models.items()]
    entries += [_entry(settings, name, model, found[name], kept_to[name]) for name, model in plain.items()]
    if DEMO_ID not in {*taken, *plain}:
        demo = policies({DEMO_ID: ModelSettings()}, settings.groups.items())[DEMO_ID]
        entries.append(ModelEntry(DEMO_ID, Source.DEMO, None, policy=demo))
    return Registry(entries, _defaults(settings))


def with_shared(own: Loaded, shared: Shared | None) -> Loaded:
    """Return what counts: a node's own configuration over what the nodes of its cluster share. Blocks."""
    folder = own.settings.models_dir
    taken = () if shared is None or folder is None else [one.name for one in scan(Path(folder))]
    return in_force(own, shared, taken)


def _found(folder: str | None) -> dict[str, FolderModel]:
    """Return the models in `models_dir` by name; log those that cannot be models because of their name."""
    if folder is None:
        return {}
    for name in passed_over(Path(folder)):
        _log.warning("passed_over", folder=folder, name=name, reason="its name cannot name a model; rename it")
    return {one.name: one for one in scan(Path(folder))}


def missing_files(models: Iterable[ModelEntry]) -> list[tuple[str, str]]:
    """Return the files that these models name and that are missing, each with the id of its model."""
    named = ((entry.id, path) for entry in models for path in (entry.path, *named_files(entry.options)))
    return [(name, path) for name, path in named if path is not None and not _is_model(path)]


def _is_model(path: str) -> bool:
    return os.path.isfile(path) or is_mlx_folder(Path(path))


def named_files(options: LaunchOptions) -> Iterator[str]:
    """Yield the files that options name."""
    for row in options_of(LaunchOptions):
        value = getattr(options, row.name)
        if names_file(row.kind, folders=False) and value is not None:
            yield from [value] if isinstance(value, str) else [adapter.path for adapter in value]


def _defaults(settings: Settings) -> ModelDefaults:
    plain = settings.defaults
    return ModelDefaults(launch_options(plain), plain.policy(), *_of_requests(plain))


def _of_requests(model: Management) -> tuple[RequestFilters, RequestSettings, ToolMode | None]:
    return model.filters.filters(), model.requests(), model.tool_calls


def _entry(
    settings: Settings, name: str, model: ModelSettings, found: FolderModel | None, policy: ModelPolicy
) -> ModelEntry:
    """Return the entry of a configured model; `found`, of `models_dir`, counts where it names no file itself."""
    entry = ModelEntry(
        *(name, Source.FILE, None, launch_options(model), model.aliases, repo_of(model), policy),
        *_of_requests(model),
    )
    path = path_of(model)
    kind = engine_of(model)
    if kind is not None and kind.source is not None:
        shared = {name: getattr(entry.options, name) for name in kind.shared}
        own = chosen_from(kind.options, model)
        return replace(entry, source=Source.COMMAND, kind=kind.name, own=own, options=LaunchOptions(**shared))
    if entry.hub is not None:
        entry = replace(entry, source=Source.HUB)
        return entry if kind is None else for_format(entry, kind.name)
    if is_demo(model) or (path is None and found is None and name == DEMO_ID):
        return replace(entry, source=Source.DEMO)
    if path is not None and is_mlx_folder(Path(path)):
        return for_format(replace(entry, path=path), MLX)
    if path is not None:
        found = look_inside(Path(path), name) if os.path.isdir(path) else FolderModel(name, Path(path))
    if found is None:  # loading it will say so
        nowhere = path or str(Path(settings.models_dir or ".") / f"{name}.gguf")
        return replace(entry, path=nowhere)
    return replace(entry, path=str(found.path), options=_with_companions(entry.options, found))


def _with_companions(options: LaunchOptions, found: FolderModel) -> LaunchOptions:
    """Return the options with the files beside the model, unless the options say otherwise."""
    if found.projector is not None and options.mmproj is None and options.mmproj_auto is not False:
        options = replace(options, mmproj=str(found.projector))
    if found.draft is not None and options.spec_draft_model is None:
        options = replace(options, spec_draft_model=str(found.draft))
    return options
