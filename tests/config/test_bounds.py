"""Nothing that can be set is without an end: not in the configuration, not over REST, not for an estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, ValidationError

from supervisor.api import files, inflight, manage, openai, peers
from supervisor.config.settings import ModelOptions, Settings
from supervisor.core.launch import LaunchOptions
from supervisor.core.memory import EstimateOptions
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
