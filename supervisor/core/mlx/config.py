"""Read a `config.json`, within bounds: its numbers are checked where they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from supervisor.core.text.foreignjson import NotJson, parse_pythons
from supervisor.errors import ModelConfigError

MAX_CONFIG: Final = 4 << 20
"""Bytes of the longest `config.json` that is read."""

_MOST = 1 << 31
_MOST_LAYERS = 4096
_NESTED = ("text_config", "language_config", "llm_config")


@dataclass(frozen=True)
class ConfigReader:
    """The values of a configuration by name; each must have its type, and numbers their bounds."""

    values: Mapping[str, Any]

    def integer(self, *names: str) -> int | None:
        """Return the first of these that is set. Raise ModelConfigError for one that is no possible size."""
        for name in names:
            value = self.values.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
                    raise ModelConfigError(f"config.json: `{name}` is no possible size.")
                return value
        return None

    def number(self, *names: str, default: int | None = None) -> int:
        """Return the same, or the default; raise ModelConfigError where there is none."""
        found = self.integer(*names)
        if found is None:
            found = default
        if found is None:
            raise ModelConfigError(f"config.json lacks `{names[0]}`, which decides the model's memory.")
        return found

    def positive(self, *names: str, default: int | None = None) -> int:
        """Return the same, which must not be zero."""
        found = self.number(*names, default=default)
        if found < 1:
            raise ModelConfigError(f"config.json: `{names[0]}` cannot be {found}.")
        return found

    def text(self, name: str) -> str:
        """Return a text; empty where there is none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        return bool(self.values.get(name))

    def items(self, name: str) -> tuple[Any, ...]:
        """Return a list, or the letters of a text; empty where there is none."""
        value = self.values.get(name)
        found = tuple(value) if isinstance(value, (list, str)) else ()
        if len(found) > _MOST_LAYERS:
            raise ModelConfigError(f"config.json: `{name}` has {len(found)} entries; {_MOST_LAYERS} are read at most.")
        return found

    def within(self, name: str) -> ConfigReader:
        """Return the configuration of this name; an empty one where there is none."""
        value = self.values.get(name)
        return ConfigReader(value if isinstance(value, dict) else {})

    @property
    def layers(self) -> int:
        """The number of layers."""
        found = self.number("num_hidden_layers", "n_layers", "n_layer", "num_layers")
        if found > _MOST_LAYERS:
            raise ModelConfigError(f"config.json: {found} layers; {_MOST_LAYERS} are read at most.")
        return found


def parse_config(text: bytes) -> dict[str, Any]:
    """Return what a `config.json` says. Raise ModelConfigError for one that is none, or too long."""
    if len(text) > MAX_CONFIG:
        raise ModelConfigError(f"config.json has {len(text)} bytes; {MAX_CONFIG} are read at most.")
    try:
        found = parse_pythons(text)
    except NotJson:
        raise ModelConfigError("config.json is no JSON; copy or download it again.") from None
    if not isinstance(found, dict):
        raise ModelConfigError("config.json is no JSON object; copy or download it again.")
    return found


def text_part(config: Mapping[str, Any]) -> ConfigReader:
    """Return the part of a configuration that is about text: all of it, but for models that also see or hear."""
    for name in _NESTED:
        inner = config.get(name)
        if isinstance(inner, dict) and inner:
            return ConfigReader({**config, **inner})
    return ConfigReader(config)
