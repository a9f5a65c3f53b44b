"""Change a configuration file in place: a model's options, with everything else as it was written."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from supervisor.config.load import load_settings
from supervisor.errors import ConfigError
from supervisor.system.atomic import atomic_write

_WIDE = 1 << 16  # no line is broken


def with_options(text: str, model: str, source: Mapping[str, str], options: Mapping[str, object]) -> str:
    """Return the file with these options of a model. Comments, order and spellings stay.

    Args:
        source: the entry's own keys, where the file has none of the model: `source`, or `file`.

    Raises ConfigError for a file that is no mapping of models.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    try:
        read: Any = yaml.load(text)
        document = {} if read is None else read
        if document.get("models") is None:
            document["models"] = {}
        entry = document["models"].get(model) or _literal(source)
        entry.update(_literal(options))
        document["models"][model] = entry
    except (YAMLError, AttributeError, TypeError) as error:
        raise ConfigError(f"The configuration cannot be changed ({error}); write the options into it.") from error
    out = io.StringIO()
    yaml.dump(document, out)
    return (text if read is None else "") + out.getvalue()


def _literal(value: Any) -> Any:
    """Return the same, written so that no text in it is taken for a reference to a variable or a macro."""
    if isinstance(value, Mapping):
        return {name: _literal(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_literal(one) for one in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def write_options(
    path: Path, env: Mapping[str, str], model: str, source: Mapping[str, str], options: Mapping[str, object]
) -> None:
    """Put a model's options into the file, if it is a valid configuration with them. Raises ConfigError, OSError."""
    old = path.read_text(encoding="utf-8")
    new = with_options(old, model, source, options)
    trial = path.with_name(f".{path.name}.tried")
    atomic_write(trial, new.encode())
    try:
        load_settings(trial, env)
    finally:
        trial.unlink(missing_ok=True)
    atomic_write(path.resolve(), new.encode(), mode=path.stat().st_mode & 0o777)  # a link stays one
