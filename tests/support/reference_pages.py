"""Two pages of reference, made from schemas: every key of the configuration, every call and object of the interface."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from supervisor.config.editors import editor_schema
from tests.support.made import ROOT, Made
from tests.support.schemas import schema

Schema: TypeAlias = Mapping[str, Any]

SETTINGS = ROOT / "docs" / "reference-configuration.md"
INTERFACE = ROOT / "docs" / "reference-rest.md"
_VARIABLE = r"\$\{[^{}]+\}"  # any value may be a variable of the environment
_FORMS = (("kKmM]$", "`32k`"), ("(ms|s|m|h|d|w)", "`10m`"), ("[mMgGtT]", "`2GiB`"))
_UNBOUNDED = 1_000_000
_HEAD = "| {} | value | default |\n|---|---|---|\n"


def value(one: Schema) -> str:
    """What a value is, in words; an object of its own by its name, linked."""
    if "$ref" in one:
        name = one["$ref"].rpartition("/")[2]
        return "any JSON" if name == "JsonValue" else f"[{name}](#{name.lower()})"
    if "anyOf" in one:
        return _either(one["anyOf"])
    if "enum" in one or "const" in one:
        return ", ".join(f"`{word}`" for word in one.get("enum", [one.get("const")]))
    kind = one.get("type", "")
    if isinstance(kind, list):
        return _either({**one, "type": each} for each in kind)
    return _VALUES.get(kind, lambda _: "any JSON")(one)


def _either(choices: Iterable[Schema]) -> str:
    told = (value(one) for one in choices if one.get("pattern") != _VARIABLE)
    return " or ".join(dict.fromkeys(told))


def _number(one: Schema) -> str:
    low, high = one.get("minimum", one.get("exclusiveMinimum")), one.get("maximum")
    above = "above" if "exclusiveMinimum" in one else "from"
    word = "whole number" if one["type"] == "integer" else "number"
    if low is None:
        return word
    return f"{word} {above} {low}" if high is None or high > _UNBOUNDED else f"{word} {above} {low} to {high}"


def _text(one: Schema) -> str:
    form = next((shown for sign, shown in _FORMS if sign in one.get("pattern", "")), None)
    return (
        f"text as {form}"
        if form
        else one.get("description", "text")
        if "pattern" in one or "maxLength" in one
        else "text"
    )


def _object(one: Schema) -> str:
    inner = one.get("additionalProperties")
    return f"{value(inner)}, by name" if isinstance(inner, Mapping) else "object"


_VALUES = {
    "boolean": lambda _: "`true`, `false`",
    "integer": _number,
    "number": _number,
    "string": _text,
    "null": lambda _: "null",
    "array": lambda one: f"list of {value(one.get('items', {}))}",
    "object": _object,
}


def cell(text: str) -> str:
    """Return a text as a cell of a table takes it."""
    return " ".join(text.split()).replace("|", "\\|")


def _default(one: Schema) -> str:
    return f"`{json.dumps(one['default'], ensure_ascii=False)}`" if "default" in one else ""


def _keys(one: Schema) -> str:
    rows = (
        f"| `{name}` | {cell(value(found))} | {cell(_default(found))} |\n" for name, found in one["properties"].items()
    )
    return _HEAD.format("key") + "".join(rows)


def settings() -> str:
    """The tables of the configuration: its own keys, its sections, a model."""
    whole = editor_schema()
    kinds: Mapping[str, Schema] = whole["$defs"]
    sections = {
        name: kinds[ref] for name, one in whole["properties"].items() if (ref := _section(one)) and name != "defaults"
    }
    plain = {
        name: one for name, one in whole["properties"].items() if not _section(one) and name not in {"models", "groups"}
    }
    parts = [f"## The file\n\n{_keys({'properties': plain})}"]
    parts += [f"## {name}\n\n{_keys(one)}" for name, one in sections.items()]
    model, others = kinds["ModelSettings"], kinds["DefaultSettings"]
    own = ", ".join(f"`{name}`" for name in model["properties"] if name not in others["properties"])
    parts.append(f"## models.NAME\n\n`defaults` takes the same keys, but for {own}.\n\n{_keys(model)}")
    parts.append(f"## groups.NAME\n\n{_keys(kinds['GroupSettings'])}")
    inner = (name for name in ("FilterSettings", "LoraSettings", "TracingSettings") if name in kinds)
    parts += [f"## {name}\n\n{_keys(kinds[name])}" for name in inner]
    return "\n".join(parts)


def _section(one: Schema) -> str | None:
    refs = [choice["$ref"].rpartition("/")[2] for choice in one.get("anyOf", ()) if "$ref" in choice]
    return refs[0] if len(refs) == 1 and refs[0].endswith("Settings") else None


def interface() -> str:
    """Every call, and the objects that they take and give."""
    found = schema()
    calls = (
        _call(method, path, said)
        for path, methods in found["paths"].items()
        for method, said in methods.items()
        if path.startswith(("/api/v1", "/v1")) or path in {"/", "/health", "/ready"}
    )
    objects = (_described(name, one) for name, one in found["components"]["schemas"].items() if name != "JsonValue")
    return "\n".join(["## Calls\n", *calls, "## Objects\n", *objects])


def _call(method: str, path: str, said: Schema) -> str:
    summary = said.get("summary", "")
    told = [summary] if summary.endswith(".") else []  # the framework's own is the name of a function
    lines = [f"### {method.upper()} {path}\n", " ".join([*told, said.get("description", "")]).strip() + "\n"]
    rows = [_parameter(one) for one in said.get("parameters", ())]
    body = _content(said.get("requestBody", {}))
    if body and "properties" in body:
        needed = body.get("required", ())
        rows += [_field(name, one, "body", name in needed) for name, one in body["properties"].items()]
    if rows:
        lines.append("| name | in | value | |\n|---|---|---|---|\n" + "".join(rows))
    if body and "$ref" in body:
        lines.append(f"Takes {value(body)}.\n")
    replies = (_content(reply) for status, reply in said.get("responses", {}).items() if status != "default")
    answers = {value(one): None for one in replies if one and "$ref" in one}
    if answers:
        lines.append(f"Gives {', '.join(answers)}.\n")
    return "\n".join(lines)


def _content(one: Schema) -> Schema | None:
    kinds = one.get("content", {})
    found: Schema | None = next((kind["schema"] for name, kind in kinds.items() if name != "text/event-stream"), None)
    return found


def _parameter(one: Schema) -> str:
    return _field(
        one["name"],
        {**one.get("schema", {}), "description": one.get("description", "")},
        one["in"],
        one.get("required", False),
    )


def _field(name: str, one: Schema, place: str, needed: bool) -> str:
    told = one.get("description", "") if value(one) != one.get("description") else ""
    return f"| `{name}` | {place}{', needed' if needed else ''} | {cell(value(one))} | {cell(told)} |\n"


def _shown(name: str, one: Schema, needed: bool) -> str:
    told = cell(one.get("description", ""))
    return f"| `{name}` | {cell(value(one))}{', always there' if needed else ''} | {told} |\n"


def _described(name: str, one: Schema) -> str:
    about = " ".join(one.get("description", "").partition("\n\n")[0].split())
    needed = one.get("required", ())
    rows = [_shown(key, found, key in needed) for key, found in one.get("properties", {}).items()]
    table = "| field | value | |\n|---|---|---|\n" + "".join(rows) if rows else f"{value(one)}.\n"
    return f"### {name}\n\n" + (f"{about}\n\n" if about else "") + table


PARTS = (
    Made(SETTINGS, re.compile(r"^## The file\n(?:.*\n)*", re.MULTILINE), settings),
    Made(INTERFACE, re.compile(r"^## Calls\n(?:.*\n)*", re.MULTILINE), interface),
)
