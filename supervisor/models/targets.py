"""Resolve the targets that people name when they load a model: the built-in one, a GGUF file, a known id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import structlog

from supervisor.config.effective import effective_models, policies, with_defaults
from supervisor.config.options import launch_options
from supervisor.config.settings import ModelOptions, ModelSettings, Settings
from supervisor.config.sources import is_demo, path_of, repo_of
from supervisor.core.gguf import shard_of
from supervisor.core.models.registry import ModelDefaults, ModelEntry, Registry, Source
from supervisor.core.options import LaunchOptions, names_file, options_of
from supervisor.core.schedule import ModelPolicy
from supervisor.core.text.plaintext import is_text, plain
from supervisor.errors import InvalidRequest, ModelFileError, ModelNotFound
from supervisor.files.folder import FolderModel, look_inside, passed_over, scan, scan_files
from supervisor.files.model_file import open_model

_log = structlog.get_logger()

DEMO_ID = "demo"
_MAX_NAMED = 5


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


def _found(folder: str | None) -> dict[str, FolderModel]:
    """Return the models in `models_dir` by name; log those that cannot be models because of their name."""
    if folder is None:
        return {}
    for name in passed_over(Path(folder)):
        _log.warning("passed_over", folder=folder, name=name, reason="its name cannot name a model; rename it")
    return {one.name: one for one in scan(Path(folder))}


def missing_files(models: Iterable[ModelEntry]) -> list[tuple[str, str]]:
    """Return the files that these models name and that are missing, each with the id of its model."""
    named = ((entry.id, path) for entry in models for path in (entry.path, *_named_files(entry.options)))
    return [(name, path) for name, path in named if path is not None and not os.path.isfile(path)]


def _named_files(options: LaunchOptions) -> Iterator[str]:
    """Yield the files that options name."""
    for row in options_of(LaunchOptions):
        value = getattr(options, row.name)
        if names_file(row.kind, folders=False) and value is not None:
            yield from [value] if isinstance(value, str) else [adapter.path for adapter in value]


def _defaults(settings: Settings) -> ModelDefaults:
    plain = settings.defaults
    return ModelDefaults(launch_options(plain), plain.policy(), plain.filters.filters(), plain.tool_calls)


def _entry(
    settings: Settings, name: str, model: ModelSettings, found: FolderModel | None, policy: ModelPolicy
) -> ModelEntry:
    """Return the entry of a configured model.

    `found`: what `models_dir` has under this name; it counts where the model names nothing itself.
    """
    entry = ModelEntry(
        *(name, Source.FILE, None, launch_options(model), model.aliases, repo_of(model), policy),
        *(model.filters.filters(), model.tool_calls),
    )
    path = path_of(model)
    if entry.hub is not None:
        return replace(entry, source=Source.HUB)
    if is_demo(model) or (path is None and found is None and name == DEMO_ID):
        return replace(entry, source=Source.DEMO)
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


def with_options(entry: ModelEntry, options: ModelOptions | None) -> ModelEntry:
    """Return the entry with these options until it is unloaded; options that are not given stay as they were."""
    if options is None:
        return entry
    return entry.loaded_with(replace(entry.options, **options.model_dump(exclude_unset=True)))


def resolve_target(registry: Registry, target: str, model_id: str | None = None) -> ModelEntry:
    """Return the entry for a load target, known or new; the registry stays as it is.

    Raises ModelNotFound, ModelFileError, ShardMissing, InvalidRequest.
    """
    return known_entry(registry, target) or _from_file(registry, target, model_id)


def known_entry(registry: Registry, target: str) -> ModelEntry | None:
    """Return the entry with this id or alias; None if the target may be a path or a hub model. Raise ModelNotFound."""
    try:
        return registry.find(target)
    except ModelNotFound:
        if "/" in target or target.endswith(".gguf"):
            return None
        raise


def _from_file(registry: Registry, target: str, model_id: str | None) -> ModelEntry:
    path = Path(target)
    if not is_text(target):
        raise ModelFileError(f"{plain(target)} is not UTF-8, so no answer can name it; rename the file or folder.")
    if not path.is_absolute():
        raise InvalidRequest(
            f"'{target}' is neither a known model, nor one of the hub (owner/repo:Q4_K_M), nor an absolute path to a "
            ".gguf file.",
            param="target",
        )
    first = str(open_model(_file_in(path) if os.path.isdir(path) else path).path)
    known = registry.by_path(first)
    if known is not None and model_id in {None, known.id}:
        return known
    name = model_id or _name_of(Path(first))
    if not name:
        raise ModelFileError(f"{path} gives no model id; name one with --id.")
    return replace(new_entry(registry, name, None), path=first)


def _name_of(first: Path) -> str:
    shard = shard_of(first.name)
    return shard.prefix if shard else first.stem


def _file_in(folder: Path) -> Path:
    """Return the one model of a folder. Raise ModelFileError where there is none, or several."""
    names = sorted(one.path.name for one in scan_files(folder))
    if len(names) == 1:
        return folder / names[0]
    if not names:
        raise ModelFileError(f"{folder} holds no model: there is no GGUF file of one in it.")
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    raise ModelFileError(f"{folder} holds {len(names)} models; name one: {', '.join(names[:_MAX_NAMED])}{more}.")


def new_entry(registry: Registry, name: str, hub: str | None, aliases: tuple[str, ...] = ()) -> ModelEntry:
    """Return a model for which nothing is configured: of the hub where there is a reference, else of a file."""
    given = registry.defaults
    source = Source.FILE if hub is None else Source.HUB
    entry = ModelEntry(name, source, None, given.options, aliases, hub)
    return replace(entry, policy=given.policy, filters=given.filters, tool_calls=given.tool_calls)
