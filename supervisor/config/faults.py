"""Report what is wrong with a configuration: where it stands, what to do, which name was meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from supervisor.config.document import Document, Loc
from supervisor.config.settings import DefaultSettings, ModelOptions
from supervisor.config.words import nearest, told
from supervisor.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """A fault in a configuration.

    Attributes:
        key: dotted, from the top of the file.
        file: None: it comes from the environment, and has no line.
        line, column: both count from 1.
    """

    message: str
    key: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: " if self.file is not None else ""
        return f"{where}{self.key + ': ' if self.key else ''}{self.message}"


def as_json(error: ConfigError) -> list[dict[str, Any]]:
    """Return the faults of a configuration as JSON values, with the attributes of `ConfigFault` as keys."""
    return [asdict(fault) for fault in error.faults if isinstance(fault, ConfigFault)]


def validation_faults(error: ValidationError, document: Document, path: Path | None) -> dict[Loc, ConfigFault]:
    """Return the faults by place, in the order of the file. Several complaints about one value are one fault."""
    found: dict[Loc, ConfigFault] = {}
    for item in error.errors():
        loc = tuple(part for part in item["loc"] if part != "[key]")
        at_key = item["type"] == "extra_forbidden" or loc != item["loc"]
        found.setdefault(loc, fault_at(document, path, loc, told(item, loc), key=at_key))
    return found


def option_fault(item: ErrorDetails, start: int = 0) -> str:
    """Return the fault in an option of a request or of the command line, from one of pydantic's errors.

    `start`: where in its place the option's name is; what is before it is around the options.
    """
    name = str(item["loc"][-1])
    if item["type"] != "extra_forbidden":
        return told(item, ("defaults", *item["loc"][start:]))
    if name in DefaultSettings.model_fields:
        return "may stand in the configuration file only"
    near = nearest(name, ModelOptions.model_fields)
    return "unknown key" + (near if "did you mean" in near else "; docs/launch.md lists them")


def fault_at(document: Document, path: Path | None, loc: Loc, message: str, *, key: bool = False) -> ConfigFault:
    """Return a fault of the value there, or of its `key`."""
    dotted = ".".join(map(str, loc))
    if path is None:
        return ConfigFault(message, dotted)
    place = document.place(loc, key=key)
    return ConfigFault(message, dotted, str(path), place.line, place.column)


def config_error(faults: Iterable[ConfigFault]) -> ConfigError:
    """Return the error that names all faults, those at the top of the file first."""
    ordered = tuple(sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0)))
    return ConfigError("\n".join(map(str, ordered)), faults=ordered)
