"""What is wrong with a configuration: where it stands, what to do, which name was meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from supervisor.config.document import Document, Loc
from supervisor.config.expand import MACROS
from supervisor.config.settings import Settings
from supervisor.core.nearest import did_you_mean
from supervisor.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing that is wrong in a configuration.

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


_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is no key here",
}


def validation_faults(error: ValidationError, document: Document, path: Path | None) -> list[ConfigFault]:
    """One for every complaint, in the order of the file; several about one value are one."""
    found: dict[Loc, ConfigFault] = {}
    for item in error.errors():
        unknown = item["type"] == "extra_forbidden"
        loc = item["loc"]
        fault = fault_at(document, path, loc, _words(item["type"], item["msg"], loc), key=unknown)
        found.setdefault(loc, fault)
    return list(found.values())


def fault_at(document: Document, path: Path | None, loc: Loc, message: str, *, key: bool = False) -> ConfigFault:
    """A fault of the value there, or of its `key`."""
    dotted = ".".join(map(str, loc))
    if path is None:
        return ConfigFault(message, dotted)
    place = document.place(loc, key=key)
    return ConfigFault(message, dotted, str(path), place.line, place.column)


def config_error(faults: Iterable[ConfigFault]) -> ConfigError:
    """The error that names them all, those at the top of the file first."""
    ordered = tuple(sorted(faults, key=lambda fault: (fault.line or 0, fault.column or 0)))
    error = ConfigError("\n".join(map(str, ordered)))
    error.faults = ordered
    return error


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean …?` where one of the names is like this one, else what there is."""
    known = sorted(names)
    near = did_you_mean(name, known)
    if near:
        return near
    return f"; there are {', '.join(known)}" if 0 < len(known) <= 12 else "; see config.example.yaml"


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of the whole file as it is validated."""
    return Settings.model_json_schema()


def names_at(loc: Loc) -> frozenset[str]:
    """The keys that are valid in the mapping there; empty where any name is."""
    node: Mapping[str, Any] = schema()
    for part in loc:
        node = _inside(_resolved(node), part)
    names = frozenset(_resolved(node).get("properties", ()))
    return names if loc else names | {MACROS}


def _words(kind: str, message: str, loc: Loc) -> str:
    if kind == "extra_forbidden":
        return _WORDS[kind] + nearest(str(loc[-1]), names_at(loc[:-1]))
    text = _WORDS.get(kind) or message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _inside(node: Mapping[str, Any], part: str | int) -> Mapping[str, Any]:
    found: Mapping[str, Any]
    if isinstance(part, int):
        found = node.get("items", {})
    else:
        found = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
    return found if isinstance(found, Mapping) else {}


def _resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference; of alternatives the one that is a mapping or a list."""
    while True:
        if "$ref" in node:
            node = schema()["$defs"][node["$ref"].rpartition("/")[2]]
        elif "anyOf" in node:
            node = next((one for one in node["anyOf"] if "$ref" in one or one.get("type") in {"object", "array"}), {})
        else:
            return node
