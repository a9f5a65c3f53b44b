"""Say in words what a value should have been, for people who write configurations; read from the settings' schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypedDict, cast

from pydantic_core import ErrorDetails

from supervisor.config.document import Loc
from supervisor.config.expand import MACROS
from supervisor.config.settings import Settings
from supervisor.core.options import LaunchOptions, Option, options_of
from supervisor.core.text import units
from supervisor.core.text.nearest import did_you_mean

_UNITS = {units.TOKENS: "8k", units.MEBIBYTES: "8g", units.DURATION: "10m"}
_PLURALS = {"a text": "texts", "a name": "names", "a path": "paths", "a number": "numbers"}


def other_names(rows: Iterable[Option]) -> dict[str, str]:
    """Map llama-server's further spellings of an option, and other programs' names for it, to its name."""
    return {
        other: row.name
        for row in rows
        for other in (*(flag.lstrip("-").replace("-", "_") for flag in row.on), *row.others)
    }


_OTHER_NAMES: Mapping[str, str] = {
    **other_names(options_of(LaunchOptions)),
    **dict.fromkeys(("m", "model", "path", "model_path"), "file"),
    **dict.fromkeys(("hf", "hf_repo", "repo"), "source"),
    **dict.fromkeys(("idle_timeout", "keep_alive", "sleep_idle_seconds"), "ttl"),
    **{"alias": "aliases", "a": "aliases"},
}
"""Keys of ours by their names in llama-server's short options and in other programs."""


Node = TypedDict(
    "Node",
    {
        "$defs": dict[str, "Node"],
        "$ref": str,
        "$schema": str,
        "additionalProperties": "Node | bool",
        "anyOf": list["Node"],
        "default": object,
        "description": str,
        "enum": list[object],
        "exclusiveMinimum": float,
        "items": "Node",
        "maximum": float,
        "minimum": float,
        "pattern": str,
        "properties": dict[str, "Node"],
        "title": str,
        "type": str | list[str],
    },
    total=False,
)
"""A JSON schema, as far as the settings use it."""
_NOTHING: Node = {}


@cache
def schema() -> Node:
    """Return the JSON schema of the whole file as it is validated."""
    return cast("Node", Settings.model_json_schema())


def names_at(loc: Loc) -> frozenset[str]:
    """Return the keys that are valid in the mapping there; empty where any name is."""
    names = frozenset(_resolved(_node(loc)).get("properties", ()))
    return names if loc else names | {MACROS}


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean …?` if one of the names is similar to this one, else the names there are."""
    known = sorted(names)
    other = _OTHER_NAMES.get(name.lower().replace("-", "_"))
    if other in known and name not in known:
        return f"; did you mean {other}?"
    near = did_you_mean(name, known)
    if near:
        return near
    return f"; there are {', '.join(known)}" if 0 < len(known) <= 12 else "; see config.example.yaml"


def told(item: ErrorDetails, loc: Loc) -> str:
    """Return what is wrong with the value at this place, from one of pydantic's errors.

    Options of a request stand where those of `defaults` do.
    """
    kind, given = item["type"], item.get("input")
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "unknown key" + nearest(str(loc[-1]), names_at(loc[:-1]))
    if kind == "value_error":
        return str(item["msg"]).removeprefix("Value error, ")
    limits = item.get("ctx") or {}
    many = {
        "too_long": "has more than {max_length} entries",
        "too_short": "must have at least {min_length} entry",
        "string_too_long": "is longer than {max_length} characters",
        "string_too_short": "must have at least {min_length} characters",
    }
    if kind in many:
        return many[kind].format(**limits)
    return f"must be {wanted(_node(loc))}{_hint(_node(loc), given)}"


def wanted(node: Node) -> str:
    """Return a schema's values in words: `a whole number from 1 to 256`, `a list of names`."""
    if "description" in node and "$ref" not in node and node.get("type") == "string":
        return str(node["description"])
    if "anyOf" in node:
        return _one_of(node["anyOf"])
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    found = _resolved(node)
    kind = found.get("type")
    if kind in {"integer", "number"}:
        return _number(found)
    if kind == "array":
        inner = wanted(found["items"])
        return f"a list of {_PLURALS.get(inner, f'entries, each {inner}')}"
    if kind == "object":
        return "a mapping of keys to values"
    return {"boolean": "true or false", "string": "a text", "null": "null"}.get(str(kind), "a value that JSON has")


def _one_of(nodes: Iterable[Node]) -> str:
    """Return alternatives in words: null last, and a text that is a number with a unit in few words."""
    found, null = [], ""
    for node in nodes:
        if node.get("type") == "null":
            null = ", or null"
        elif node.get("pattern") in _UNITS:
            found.append(f"one with a unit, such as {_UNITS[node['pattern']]}")
        else:
            found.append(wanted(node))
    return " or ".join(found) + null


def _number(node: Node) -> str:
    kind = "a whole number" if node["type"] == "integer" else "a number"
    high = node.get("maximum")
    if "exclusiveMinimum" in node:
        return f"{kind} above {_figure(node['exclusiveMinimum'])} and up to {_figure(high)}"
    return f"{kind} from {_figure(node.get('minimum'))} to {_figure(high)}"


def _figure(value: object) -> str:
    return str(int(value)) if isinstance(value, int | float) and float(value).is_integer() else str(value)


def _hint(node: Node, given: object) -> str:
    """Return a hint about the most frequent reason for such a value."""
    words = wanted(node)
    if isinstance(given, str) and given.lower() in {"yes", "no", "on", "off"} and "true or false" in words:
        return f"; {given} is a word like any other in YAML 1.2"
    is_text = isinstance(given, bool | int | float) and words.startswith(("a text", "a name", "a path"))
    return "; put it in quotes" if is_text else ""


def _node(loc: Loc) -> Node:
    node: Node = schema()
    for part in loc:
        node = _inside(_resolved(node), part)
    return node


def _inside(node: Node, part: str | int) -> Node:
    if isinstance(part, int):
        return node.get("items", _NOTHING)
    further = node.get("additionalProperties")
    return node.get("properties", {}).get(part) or (
        _NOTHING if further is None or isinstance(further, bool) else further
    )


def _resolved(node: Node) -> Node:
    """Return the node that a reference leads to; of alternatives the one that is a mapping or a list."""
    while True:
        if "$ref" in node:
            node = schema()["$defs"][node["$ref"].rpartition("/")[2]]
        elif "anyOf" in node:
            inner = (one for one in node["anyOf"] if "$ref" in one or one.get("type") in {"object", "array"})
            node = next(inner, _NOTHING)
        else:
            return node
