"""What people name when they load a model: the built-in one, a GGUF file, a known id."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

from supervisor.config.settings import ModelOptions, Settings
from supervisor.core.launch import LaunchOptions, LoraAdapter
from supervisor.core.registry import ModelEntry, Registry, Source
from supervisor.errors import InvalidRequest, ModelFileError, ModelNotFound
from supervisor.modelfiles import open_model

DEMO_ID = "demo"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def launch_options(options: ModelOptions) -> LaunchOptions:
    """The launch options that these settings ask for."""
    given = options.model_dump(include={field.name for field in fields(LaunchOptions)})
    lora = tuple(LoraAdapter(**adapter) for adapter in given.pop("lora", ()))
    return LaunchOptions(**given, lora=lora)


def configured_models(settings: Settings) -> Registry:
    """The built-in model and those of the configuration."""
    entries = [
        ModelEntry(name, Source.FILE, model.file, launch_options(model), model.aliases, model.tool_calls)
        for name, model in settings.models.items()
    ]
    demo = ModelEntry(DEMO_ID, Source.DEMO, None)
    return Registry((*entries, *(() if DEMO_ID in settings.models else (demo,))))


def resolve_target(registry: Registry, target: str, model_id: str | None, options: ModelOptions | None) -> ModelEntry:
    """The entry for a load target, known or new; the registry stays as it is.

    Options that are not given stay as they were. Raises ModelNotFound, ModelFileError, ShardMissing, InvalidRequest.
    """
    entry = _existing(registry, target) or _from_file(registry, target, model_id)
    if options is None:
        return entry
    return replace(entry, options=replace(entry.options, **options.model_dump(exclude_unset=True)))


def _existing(registry: Registry, target: str) -> ModelEntry | None:
    try:
        return registry.find(target)
    except ModelNotFound:
        if "/" in target or target.endswith(".gguf"):
            return None
        raise


def _from_file(registry: Registry, target: str, model_id: str | None) -> ModelEntry:
    path = Path(target)
    if not path.is_absolute():
        raise InvalidRequest(
            f"'{target}' is neither a known model nor an absolute path to a .gguf file.", param="target"
        )
    first = str(open_model(path).path)
    known = registry.by_path(first)
    if known is not None and model_id in {None, known.id}:
        return known
    name = model_id or _SHARD.sub("", Path(first).stem)
    if not name:
        raise ModelFileError(f"{path} gives no model id; name one with --id.")
    return ModelEntry(name, Source.FILE, first)
