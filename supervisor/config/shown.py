"""Show the effective values, and where each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from supervisor.config.document import Loc
from supervisor.config.effective import effective_models
from supervisor.config.load import KEY_VARIABLE, Loaded
from supervisor.core.text.secrets import HIDDEN, is_likely_secret, shown_arguments, without_credentials

Origin = Literal["file", "cluster", "defaults", "environment", "command line", "load", "default"]

_KEYS = frozenset({"api_keys", "token"})
_COMMANDS = frozenset({"extra_args", "command", "stop"})


@dataclass(frozen=True, slots=True)
class Shown:
    """An effective value.

    Attributes:
        origin: `cluster` is the configuration that all nodes share; `command line` is that of `serve`; `load` is
            whoever loaded the model with other options.
        place: `FILE:LINE:COLUMN`, the variable's name, or empty. The cluster's file is `version N`.
    """

    key: str
    value: object
    origin: Origin
    place: str = ""


def shown(loaded: Loaded, env: Mapping[str, str], *, everything: bool = False) -> Iterator[Shown]:
    """Yield every value of the sections and of the models' own settings; with `everything` the models' defaults too."""
    for name in type(loaded.settings).model_fields:
        value = getattr(loaded.settings, name)
        if name in {"models", "groups", "defaults"}:
            continue
        if isinstance(value, BaseModel):
            yield from (_plain(loaded, env, (name, key), getattr(value, key)) for key in type(value).model_fields)
        else:
            yield _plain(loaded, env, (name,), value)
    defaults = loaded.settings.defaults
    yield from (_plain(loaded, env, ("defaults", key), getattr(defaults, key)) for key in _set(defaults))
    for name, model in effective_models(loaded.settings).items():
        yield from _model(loaded, name, model, everything=everything)
    for name, group in loaded.settings.groups.items():
        yield from (_plain(loaded, env, ("groups", name, key), getattr(group, key)) for key in type(group).model_fields)


def shown_value(key: str, value: object) -> object:
    """Return the value of a model's setting as JSON would have it, with secrets hidden."""
    return _value((key,), value)


def _model(loaded: Loaded, name: str, model: BaseModel, *, everything: bool) -> Iterator[Shown]:
    own = loaded.settings.models[name].model_fields_set
    inherited = loaded.settings.defaults.model_fields_set
    for key in type(model).model_fields:
        dotted, value = f"models.{name}.{key}", _value((key,), getattr(model, key))
        if key in own:
            yield Shown(dotted, value, *_written(loaded, ("models", name, key)))
        elif key in inherited:
            yield Shown(dotted, value, "defaults", _written(loaded, ("defaults", key))[1])
        elif everything:
            yield Shown(dotted, value, "default")


def _plain(loaded: Loaded, env: Mapping[str, str], loc: Loc, value: object) -> Shown:
    key = ".".join(map(str, loc))
    if loc in loaded.overridden:
        return Shown(key, _value(loc, value), "command line")
    if key == "server.api_keys" and env.get(KEY_VARIABLE):
        return Shown(key, _value(loc, value), "environment", KEY_VARIABLE)
    if loaded.holder(loc) is not None:
        return Shown(key, _value(loc, value), *_written(loaded, loc))
    return Shown(key, _value(loc, value), "default")


def _written(loaded: Loaded, loc: Loc) -> tuple[Origin, str]:
    """Return whose text has a value, and where."""
    text = loaded.holder(loc) or loaded.holder(loc[:-1]) or loaded
    place = text.document.place(loc)
    return "file" if text is loaded else "cluster", f"{text.path}:{place.line}:{place.column}"


def _value(loc: Loc, value: object) -> object:
    """Return a value as JSON would have it, with secrets hidden."""
    if loc[-1] in _KEYS:
        return _hidden(value)
    if loc[-1] == "env" and isinstance(value, dict):
        return {name: HIDDEN if is_likely_secret(name) else without_credentials(text) for name, text in value.items()}
    if loc[-1] in _COMMANDS and isinstance(value, tuple):
        return shown_arguments(value)
    if isinstance(value, BaseModel):
        return {name: _value((*loc, name), getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {name: _value((*loc, name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(loc, item) for item in value]
    return without_credentials(value) if isinstance(value, str) else value


def _hidden(value: object) -> object:
    if value is None:
        return None
    return [HIDDEN for _ in value] if isinstance(value, tuple) else HIDDEN


def _set(model: BaseModel) -> list[str]:
    return [key for key in type(model).model_fields if key in model.model_fields_set]
