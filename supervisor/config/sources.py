"""Interpret the source of a model, as the configuration writes it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from supervisor.config.settings import ModelSettings
from supervisor.core.repository import HubReference, parse_reference
from supervisor.engines.kind import Kind
from supervisor.engines.kinds import KINDS
from supervisor.errors import InvalidRequest

DEMO = "demo"
_MARKED = re.compile(r"hf://|https?://|hf\.co/|(?:www\.)?huggingface\.co/", re.IGNORECASE)
_PATH = re.compile(r"[./~]|[A-Za-z]:[\\/]|.*\.gguf$", re.DOTALL)

Form = Literal["demo", "engine", "path", "repo"]
_ENGINES = {kind.source: kind for kind in KINDS.values() if kind.source is not None}


def kind_of(source: str) -> Form | None:
    """Return the kind of a `source`; None if it is none of them. `engine`: the name of a kind of engine."""
    if source == DEMO:
        return "demo"
    if source in _ENGINES:
        return "engine"
    if _PATH.match(source) and not _MARKED.match(source):
        return "path"
    return "repo" if _reference(source) is not None else None


def engine_of(model: ModelSettings) -> Kind | None:
    """Return the kind of engine that a model's `source` names, by itself or by the format of a repository's model.

    None: it names a file, a repository or nothing, and the files decide.
    """
    source = model.source or ""
    if source in _ENGINES or kind_of(source) != "repo":
        return _ENGINES.get(source)
    reference = _reference(source)
    return KINDS.get((reference.quant or "").lower()) if reference is not None else None


def path_of(model: ModelSettings) -> str | None:
    """Return the file or folder that a model names; None if it names none."""
    if model.file is not None:
        return model.file
    return model.source if model.source is not None and kind_of(model.source) == "path" else None


def repo_of(model: ModelSettings) -> str | None:
    """Return the repository reference of a model that has one, written as short as possible."""
    return str(_reference(model.source)) if model.source is not None and kind_of(model.source) == "repo" else None


def _reference(source: str) -> HubReference | None:
    try:
        return parse_reference(source)
    except InvalidRequest:
        return None


def is_demo(model: ModelSettings) -> bool:
    """Return whether the model is the built-in one under another name or with other options."""
    return model.source == DEMO


def absolute(base: Path, text: str) -> str:
    """Return the path made absolute; relative files are relative to the configuration file."""
    return str((base / os.path.expanduser(text)).absolute())


_LLAMA_SWAP = frozenset({
    "healthCheckTimeout",
    "startPort",
    "globalTTL",
    "unloadTimeout",
    "apiKeys",
    "hooks",
    "routing",
})


def is_llama_swap(data: Mapping[str, object]) -> bool:
    """Return whether a file is one of llama-swap, whose models have commands where ours have sources."""
    models = data.get("models")
    commands = any(
        isinstance(one, dict) and "cmd" in one for one in (models.values() if isinstance(models, dict) else ())
    )
    return commands or bool(data.keys() & _LLAMA_SWAP)
