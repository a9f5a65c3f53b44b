"""Find the configuration file, read it, and say what is wrong with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from supervisor.config.checks import complaints
from supervisor.config.document import Document, NotADocument, Place, read_document
from supervisor.config.expand import expand
from supervisor.config.faults import ConfigFault, config_error, fault_at, validation_faults
from supervisor.config.settings import DefaultSettings, ModelSettings, Settings
from supervisor.config.sources import absolute, path_of
from supervisor.errors import ConfigError

_MOST_BYTES = 4 << 20
FILE_NAME = "supervisor.yaml"
KEY_VARIABLE = "SUPERVISOR_API_KEY"
_FILES = ("chat_template_file", "slot_save_path", "mmproj", "spec_draft_model")
_Model = TypeVar("_Model", bound=DefaultSettings)


@dataclass(frozen=True)
class Loaded:
    """Settings, and the text that they come from; `path` is None where there is no file."""

    settings: Settings
    document: Document
    path: Path | None


def find_config(explicit: str | None, env: Mapping[str, str], cwd: Path, user_folder: Path) -> Path | None:
    """The file to use: `--config`, `$SUPERVISOR_CONFIG`, the working folder's own, the user's; None for defaults.

    The working folder's file counts only if it belongs to the user and nobody else can write it, because a
    configuration can name programs to run.
    """
    for given in (explicit, env.get("SUPERVISOR_CONFIG")):
        if given:
            path = Path(given).expanduser().absolute()
            if not path.is_file():
                how = "is a folder; name the file in it" if path.is_dir() else "does not exist"
                raise ConfigError(f"The configuration file {path} {how}.")
            return path
    here = cwd / FILE_NAME
    if here.is_file() and _is_private(here):
        return here
    user = user_folder / FILE_NAME
    return user if user.is_file() else None


def load_settings(path: Path | None, env: Mapping[str, str]) -> Settings:
    """The validated settings of the file (defaults without one) plus `$SUPERVISOR_API_KEY`.

    Raises ConfigError naming the file, line and column of everything that is wrong.
    """
    return load(path, env).settings


def load(path: Path | None, env: Mapping[str, str]) -> Loaded:
    """The same, with the places of everything. Raises ConfigError."""
    text = _text(path) if path is not None else ""
    try:
        document = read_document(text)
    except NotADocument as error:
        raise config_error([_fault(path, error.message, error.place, error.loc)]) from None
    data, misuses = expand(_without_empty(document.data), env)
    faults = [fault_at(document, path, misuse.loc, misuse.message) for misuse in misuses]
    own_key = _add_key(data, env)
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        found = validation_faults(error, document, path)
        mine = [ConfigFault(fault.message, KEY_VARIABLE) if fault.key == own_key else fault for fault in found]
        wrong = {fault.key for fault in faults}
        raise config_error([*faults, *(fault for fault in mine if fault.key not in wrong)]) from None
    faults += [fault_at(document, path, one.loc, one.message, key=one.key) for one in complaints(settings)]
    if faults:
        raise config_error(faults)
    return Loaded(_with_absolute_files(settings, path), document, path)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path} is larger than {_MOST_BYTES >> 20} MiB; that is no configuration.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise config_error([_fault(path, f"not UTF-8: {error.reason}", place)]) from None


def _fault(path: Path | None, message: str, place: Place, loc: tuple[str | int, ...] = ()) -> ConfigFault:
    return ConfigFault(message, ".".join(map(str, loc)), str(path), place.line, place.column)


def _without_empty(data: Mapping[str, Any]) -> dict[str, Any]:
    """A section with nothing in it, and a model of which nothing is said, are as good as empty ones."""
    given = {key: value for key, value in data.items() if value is not None or key == "models_dir"}
    if isinstance(models := given.get("models"), dict):
        given["models"] = {name: {} if model is None else model for name, model in models.items()}
    return given


def _add_key(data: dict[str, Any], env: Mapping[str, str]) -> str:
    """Add the environment's key; where it went, dotted."""
    key = env.get(KEY_VARIABLE)
    if not key:
        return ""
    if data.get("server") is None:
        data["server"] = {}
    server = data["server"]
    known = server.get("api_keys") if isinstance(server, dict) else ""
    if known is None:
        known = []
    if not isinstance(known, list):
        return ""  # something else is wrong here
    server["api_keys"] = [*known, key]
    return f"server.api_keys.{len(known)}"


def _with_absolute_files(settings: Settings, path: Path | None) -> Settings:
    """Relative files are relative to the configuration file."""
    base = path.parent if path is not None else Path.cwd()
    models = {name: _source_under(base, _files_under(base, model)) for name, model in settings.models.items()}
    update: dict[str, Any] = {"models": models, "defaults": _files_under(base, settings.defaults)}
    if settings.models_dir is not None:
        update["models_dir"] = absolute(base, settings.models_dir)
    if settings.hub.cache is not None:
        update["hub"] = settings.hub.model_copy(update={"cache": absolute(base, settings.hub.cache)})
    return settings.model_copy(update={key: value for key, value in update.items() if key in settings.model_fields_set})


def _source_under(base: Path, model: ModelSettings) -> ModelSettings:
    path = path_of(model)
    if path is None:
        return model
    return model.model_copy(update={"file" if model.file is not None else "source": absolute(base, path)})


def _files_under(base: Path, model: _Model) -> _Model:
    given = {name: getattr(model, name) for name in _FILES}
    files: dict[str, Any] = {name: absolute(base, text) for name, text in given.items() if text is not None}
    if model.lora:
        lora = (adapter.model_copy(update={"path": absolute(base, adapter.path)}) for adapter in model.lora)
        files["lora"] = tuple(lora)
    return model.model_copy(update=files)


def _is_private(path: Path) -> bool:
    found = path.stat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
