"""What a value should have been, in words for people who write configurations; read from the settings' own schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from supervisor.config.document import Loc
from supervisor.config.expand import MACROS
from supervisor.config.settings import Settings
from supervisor.core.launch.typed import SPECIAL, SWITCHES, VALUED
from supervisor.core.text import units
from supervisor.core.text.nearest import did_you_mean

_UNITS = {units.TOKENS: "8k", units.MEBIBYTES: "8g", units.DURATION: "10m"}
_PLURALS = {"a text": "texts", "a name": "names", "a path": "paths", "a number": "numbers"}
_OTHER_NAMES: Mapping[str, str] = {
    **{
        flag.lstrip("-").replace("-", "_"): row.field
        for row in (*VALUED.values(), *SWITCHES.values(), *SPECIAL.values())
        for flag in row.on
    },
    **dict.fromkeys(("num_ctx", "n_ctx", "context", "context_length", "context_size", "max_context"), "ctx_size"),
    **dict.fromkeys(("num_gpu", "n_gpu", "gpu_layer", "n_layers"), "n_gpu_layers"),
    **dict.fromkeys(("num_thread", "n_threads"), "threads"),
    **dict.fromkeys(("num_batch", "n_batch"), "batch_size"),
    **dict.fromkeys(("num_parallel", "n_parallel", "slots"), "parallel"),
    **{"n_ubatch": "ubatch_size", "type_k": "cache_type_k", "type_v": "cache_type_v", "mm": "mmproj"},
    **dict.fromkeys(("m", "model", "path", "model_path"), "file"),
    **dict.fromkeys(("hf", "hf_repo", "repo"), "source"),
    **dict.fromkeys(("idle_timeout", "keep_alive", "sleep_idle_seconds"), "ttl"),
    **{"alias": "aliases", "a": "aliases"},
}
"""What llama-server's short options and other programs call a key of ours."""


@cache
def schema() -> dict[str, Any]:
    """The JSON schema of the whole file as it is validated."""
    return Settings.model_json_schema()


def names_at(loc: Loc) -> frozenset[str]:
    """The keys that are valid in the mapping there; empty where any name is."""
    names = frozenset(_resolved(_node(loc)).get("properties", ()))
    return names if loc else names | {MACROS}


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean …?` where one of the names is like this one, else what there is."""
    known = sorted(names)
    other = _OTHER_NAMES.get(name.lower().replace("-", "_"))
    if other in known and name not in known:
        return f"; did you mean {other}?"
    near = did_you_mean(name, known)
    if near:
        return near
    return f"; there are {', '.join(known)}" if 0 < len(known) <= 12 else "; see config.example.yaml"


def told(item: Mapping[str, Any], loc: Loc) -> str:
    """What is wrong with the value there, from one of pydantic's errors.

    Options of a request stand where those of `defaults` do.
    """
    kind, given = item["type"], item.get("input")
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not a known key" + nearest(str(loc[-1]), names_at(loc[:-1]))
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


def wanted(node: Mapping[str, Any]) -> str:
    """What a schema takes: `a whole number from 1 to 256`, `a list of names`."""
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


def _one_of(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Alternatives; null last, and a text that is a number with a unit in few words."""
    found, null = [], ""
    for node in nodes:
        if node.get("type") == "null":
            null = ", or null"
        elif node.get("pattern") in _UNITS:
            found.append(f"one with a unit, such as {_UNITS[node['pattern']]}")
        else:
            found.append(wanted(node))
    return " or ".join(found) + null


def _number(node: Mapping[str, Any]) -> str:
    kind = "a whole number" if node["type"] == "integer" else "a number"
    high = node.get("maximum")
    if "exclusiveMinimum" in node:
        return f"{kind} above {_figure(node['exclusiveMinimum'])} and up to {_figure(high)}"
    return f"{kind} from {_figure(node.get('minimum'))} to {_figure(high)}"


def _figure(value: Any) -> str:
    return str(int(value)) if isinstance(value, int | float) and float(value).is_integer() else str(value)


def _hint(node: Mapping[str, Any], given: object) -> str:
    """What most often leads to this value."""
    words = wanted(node)
    if isinstance(given, str) and given.lower() in {"yes", "no", "on", "off"} and "true or false" in words:
        return f"; {given} is a word like any other in YAML 1.2"
    is_text = isinstance(given, bool | int | float) and words.startswith(("a text", "a name", "a path"))
    return "; put it in quotes" if is_text else ""


def _node(loc: Loc) -> Mapping[str, Any]:
    node: Mapping[str, Any] = schema()
    for part in loc:
        node = _inside(_resolved(node), part)
    return node


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
