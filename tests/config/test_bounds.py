"""Nothing that can be set is without an end: not in the configuration, not over REST, not for an estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args

import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, TypeAdapter, ValidationError

from supervisor.api import files, inflight, manage, openai, peers
from supervisor.config import base
from supervisor.config.options import setting_type
from supervisor.config.settings import ModelOptions, Settings
from supervisor.core.launch import LaunchOptions
from supervisor.core.memory import EstimateOptions
from supervisor.core.options import kinds
from supervisor.planning.estimates import EstimateGiven
from tests.config.extremes import extremes


def unbounded(node: Mapping[str, Any], schema: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Places of a JSON schema at which a value may be as large as it likes."""
    if "$ref" in node:  # a definition is walked by itself; JSON of any kind has an end where it is used
        if node["$ref"].endswith("/JsonValue") and "x-maxCharacters" not in node:
            yield f"{where}: anything"
    elif "anyOf" in node:
        for one in node["anyOf"]:
            yield from unbounded(one, schema, where)
    elif not node.keys() & {"enum", "const", "x-maxCharacters"}:
        if not all(node.keys() & wanted for wanted in ENDS.get(node.get("type", ""), [set()])):
            yield f"{where}: {node.get('type', 'anything')}"
        yield from within(node, schema, where)


ENDS: Mapping[str, list[set[str]]] = {
    "boolean": [],
    "null": [],
    "integer": [{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}],
    "number": [{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}],
    "string": [{"maxLength"}],
    "array": [{"maxItems"}],
    "object": [{"maxProperties", "properties"}],
}


def within(node: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """The same of the parts of a list or a mapping."""
    if "items" in node:
        yield from unbounded(node["items"], schema, f"{where}[]")
    if "maxProperties" in node:
        if "maxLength" not in node.get("propertyNames", {}):
            yield f"{where}: names"
        yield from unbounded(node["additionalProperties"], schema, f"{where}.*")
    for name, one in node.get("properties", {}).items():
        yield from unbounded(one, schema, f"{where}.{name}")


def all_unbounded(schema: Mapping[str, Any]) -> list[str]:
    found = list(unbounded(schema, schema)) if "type" in schema else []
    for name, one in schema.get("$defs", {}).items():
        found += unbounded(one, schema, name) if name != "JsonValue" else ()
    return found


@pytest.mark.parametrize("model", [Settings, ModelOptions, EstimateGiven])
def test_every_setting_and_option_has_bounds(model: type[BaseModel]) -> None:
    assert all_unbounded(model.model_json_schema()) == []


def test_so_has_what_requests_say() -> None:
    app = FastAPI()
    routers: list[APIRouter] = [openai.router, manage.router, inflight.router, peers.router, files.router]
    for router in routers:
        app.include_router(router)
    found: list[str] = []
    api = app.openapi()
    for path, methods in api["paths"].items():
        for method, one in methods.items():
            for parameter in one.get("parameters", []):
                found += unbounded(parameter["schema"], api, f"{method} {path} {parameter['name']}")
    bodies = {
        content["schema"]["$ref"].rpartition("/")[2]
        for methods in api["paths"].values()
        for one in methods.values()
        for content in one.get("requestBody", {}).get("content", {}).values()
    }
    seen: set[str] = set()
    while bodies - seen:
        name = (bodies - seen).pop()
        seen.add(name)
        definition = api["components"]["schemas"][name]
        found += unbounded(definition, api, name) if name != "JsonValue" else ()
        bodies |= set(named(definition))
    assert found == []
    assert "ModelOptions" in seen


def named(node: Any) -> Iterator[str]:
    """Definitions that a schema refers to."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for one in node.values():
            yield from named(one)
    elif isinstance(node, list):
        for one in node:
            yield from named(one)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "integer", "minimum": 0}, [": integer"]),
        ({"type": "number", "maximum": 0}, [": number"]),
        ({"type": "string", "pattern": "x"}, [": string"]),
        ({"type": "array", "items": {"type": "boolean"}}, [": array"]),
        ({"type": "array", "maxItems": 3, "items": {"type": "string"}}, ["[]: string"]),
        ({"type": "object", "additionalProperties": {}}, [": object"]),
        (
            {"type": "object", "maxProperties": 1, "additionalProperties": {"$ref": "/JsonValue"}},
            [": names", ".*: anything"],
        ),
        ({"anyOf": [{"type": "null"}, {}]}, [": anything"]),
    ],
)
def test_what_has_none_is_found(schema: dict[str, Any], told: list[str]) -> None:
    assert list(unbounded(schema, schema)) == told


KIB, MOST_TOKENS = 1 << 10, (1 << 31) - 1
NUMBERS: Mapping[str, tuple[float, float]] = {
    "Tokens": (0, MOST_TOKENS), "SomeTokens": (1, MOST_TOKENS), "AllTokens": (-1, MOST_TOKENS),
    "Context": (256, MOST_TOKENS), "Mebibytes": (0, 1 << 24), "AllMebibytes": (-1, 1 << 24),
    "BodyMebibytes": (1, 1 << 16), "Bytes": (0, 1 << 50), "HeaderKibibytes": (4, KIB), "HeaderCount": (16, 2000),
    "Port": (0, 65_535), "Slots": (1, 256), "Threads": (1, 512), "Layers": (0, 10_000), "AllLayers": (-1, 10_000),
    "Natural": (0, 1_000_000), "Positive": (1, 1_000_000), "Priority": (-30, 30), "Probability": (0, 1),
    "Number": (-1e12, 1e12), "Portion": (0, 1e6), "NoSeconds": (0, 1e9),
}  # fmt: skip
TEXTS: Mapping[str, tuple[int, str | None]] = {
    "Name": (256, "a name"), "Path": (4 * KIB, "a path"), "File": (4 * KIB, "a path"), "Folder": (4 * KIB, "a path"),
    "Target": (4 * KIB, "a path"), "Text": (32_000, None), "LongText": (32_000, None),
}  # fmt: skip


def kinds_called(name: str) -> list[TypeAdapter[Any]]:
    """What a configuration and an option of the table take by this name."""
    found = [getattr(base, name)] if hasattr(base, name) else []
    found += [setting_type(kind) for kind in get_args(getattr(kinds, name, None))[1:]]
    assert found
    return [TypeAdapter(one) for one in found]


def takes(kind: TypeAdapter[Any], value: object) -> bool:
    try:
        kind.validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("name", "least", "most"), [(name, *ends) for name, ends in NUMBERS.items()])
def test_each_kind_of_number_ends_where_it_should(name: str, least: float, most: float) -> None:
    for kind in kinds_called(name):
        assert [takes(kind, value) for value in (least - 1, least, most, most + 1)] == [False, True, True, False]


@pytest.mark.parametrize(("name", "most", "told"), [(name, *facts) for name, facts in TEXTS.items()])
def test_each_kind_of_text_has_its_length_and_its_word(name: str, most: int, told: str | None) -> None:
    for kind in kinds_called(name):
        assert [takes(kind, "x" * length) for length in (most, most + 1)] == [True, False]
        assert kind.json_schema().get("description") == told


def test_an_estimate_is_given_the_options_that_it_knows() -> None:
    assert EstimateGiven.model_fields.keys() == {field.name for field in fields(EstimateOptions)}


@pytest.mark.parametrize("name", ModelOptions.model_fields)
def test_the_extremes_of_every_option_are_valid_and_what_is_beyond_is_not(name: str) -> None:
    within, beyond = extremes(name)
    assert within
    for value in within:
        made = ModelOptions.model_validate({name: value})
        assert name in LaunchOptions.__dataclass_fields__
        assert made.model_fields_set == {name}
    for value in beyond:
        with pytest.raises(ValidationError):
            ModelOptions.model_validate({name: value})


@pytest.mark.parametrize("entries", [[1] * 10_000, {str(number): [] for number in range(10_000)}])
def test_what_has_too_many_entries_is_refused_before_they_are_looked_at(entries: object) -> None:
    """Tens of thousands of faults, one for each, take seconds."""
    for name in ModelOptions.model_fields:
        with pytest.raises(ValidationError) as refused:
            ModelOptions.model_validate({name: entries})
        assert refused.value.error_count() <= 10, name
