"""Find the configuration file, read it, and say what is wrong with it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from supervisor.config.settings import ModelSettings, Settings
from supervisor.errors import ConfigError

FILE_NAME = "supervisor.yaml"
_FILES = ("file", "chat_template_file", "slot_save_path", "mmproj", "spec_draft_model")


def find_config(explicit: str | None, env: Mapping[str, str], cwd: Path, user_folder: Path) -> Path | None:
    """The file to use: `--config`, `$SUPERVISOR_CONFIG`, the working folder's own, the user's; None for defaults.

    The working folder's file counts only if it belongs to the user and nobody else can write it, because a
    configuration can name programs to run.
    """
    for given in (explicit, env.get("SUPERVISOR_CONFIG")):
        if given:
            path = Path(given).expanduser().absolute()
            if not path.is_file():
                raise ConfigError(f"The configuration file {path} does not exist.")
            return path
    here = cwd / FILE_NAME
    if here.is_file() and _is_private(here):
        return here
    user = user_folder / FILE_NAME
    return user if user.is_file() else None


def load_settings(path: Path | None, env: Mapping[str, str]) -> Settings:
    """The validated settings of the file (defaults without one) plus `$SUPERVISOR_API_KEY`.

    Raises ConfigError naming the file and every wrong key.
    """
    data = _read(path) if path is not None else {}
    key = env.get("SUPERVISOR_API_KEY")
    if key:
        server = data.setdefault("server", {})
        if isinstance(server, dict):
            server["api_keys"] = [*server.get("api_keys", ()), key]
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{path or 'The environment'}: {_explain(error)}") from None
    return _with_absolute_files(settings, path)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping at its top level; see config.example.yaml.")
    return data


def _explain(error: ValidationError) -> str:
    lines = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()]
    return "; ".join(lines) + ". See config.example.yaml."


def _with_absolute_files(settings: Settings, path: Path | None) -> Settings:
    """Relative files are relative to the configuration file."""
    base = path.parent if path is not None else Path.cwd()
    models = {name: _with_files_under(base, model) for name, model in settings.models.items()}
    return settings.model_copy(update={"models": models})


def _with_files_under(base: Path, model: ModelSettings) -> ModelSettings:
    def absolute(text: str) -> str:
        return str((base / Path(text).expanduser()).absolute())

    given = {name: getattr(model, name) for name in _FILES}
    files = {name: absolute(text) for name, text in given.items() if text is not None}
    lora = tuple(adapter.model_copy(update={"path": absolute(adapter.path)}) for adapter in model.lora)
    return model.model_copy(update={**files, "lora": lora})


def _is_private(path: Path) -> bool:
    found = path.stat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
