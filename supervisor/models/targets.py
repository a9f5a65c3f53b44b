"""Resolve the targets that people name when they load a model: the built-in one, a GGUF file, a known id."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from supervisor.config.settings import ModelOptions
from supervisor.core.gguf import shard_of
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.text.plaintext import is_text, plain
from supervisor.engines.kinds import KINDS, MLX, for_format
from supervisor.errors import InvalidRequest, ModelFileError, ModelNotFound
from supervisor.files.folder import scan_files
from supervisor.files.mlx_folder import is_mlx_folder, read_mlx
from supervisor.files.model_file import open_model

_MAX_NAMED = 5


def with_options(entry: ModelEntry, options: ModelOptions | None) -> ModelEntry:
    """Return the entry with these options until it is unloaded; options that are not given stay as they were.

    Raises InvalidRequest for one that the model's kind of engine does not know.
    """
    if options is None:
        return entry
    given, kind = options.model_dump(exclude_unset=True), KINDS[entry.kind]
    if unknown := sorted(given.keys() - kind.knows):
        message = f"`{unknown[0]}` means nothing to the engine of '{entry.id}' ({kind.summary}). Leave it out."
        raise InvalidRequest(message, param=unknown[0])
    return entry.loaded_with(replace(entry.options, **given))


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
    if is_mlx_folder(path):
        return _mlx_entry(registry, path, model_id)
    first = str(open_model(_file_in(path) if os.path.isdir(path) else path).path)
    known = registry.by_path(first)
    if known is not None and model_id in {None, known.id}:
        return known
    name = model_id or _name_of(Path(first))
    if not name:
        raise ModelFileError(f"{path} gives no model id; name one with --id.")
    return replace(new_entry(registry, name, None), path=first)


def _mlx_entry(registry: Registry, folder: Path, model_id: str | None) -> ModelEntry:
    """Return the entry of a folder with a model for MLX. Raises as `read_mlx`, and NotSupportedByEngine."""
    read_mlx(folder)
    known = registry.by_path(str(folder))
    if known is not None and model_id in {None, known.id}:
        return known
    name = model_id or folder.name
    if not name:
        raise ModelFileError(f"{folder} gives no model id; name one with --id.")
    return replace(for_format(new_entry(registry, name, None), MLX), path=str(folder))


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
    return replace(
        entry, policy=given.policy, filters=given.filters, requests=given.requests, tool_calls=given.tool_calls
    )
