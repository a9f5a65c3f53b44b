"""The schema for editors says yes to what the program takes: the example, and any valid configuration."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from supervisor.config.document import read_document
from supervisor.config.editors import editor_schema
from supervisor.config.expand import escape
from tests.config.strategies import configurations

SCHEMA: dict[str, Any] = dict(editor_schema())
EXAMPLE = read_document((Path(__file__).parents[2] / "config.example.yaml").read_text(encoding="utf-8")).data
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS = {"title", "description", "default", "$schema", "$defs", "x-maxCharacters"}  # that check nothing here


def is_type(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def valid(value: Any, schema: dict[str, Any]) -> bool:
    """The part of JSON schema that ours uses; fails on a keyword that is not known here."""
    return all(_holds(word, rule, value, schema) for word, rule in schema.items() if word not in _WORDS)


def _holds(word: str, rule: Any, value: Any, schema: dict[str, Any]) -> bool:
    number = isinstance(value, int | float)
    checks: dict[str, Callable[[], object]] = {
        "$ref": lambda: valid(value, SCHEMA["$defs"][rule.rpartition("/")[2]]),
        "anyOf": lambda: any(valid(value, one) for one in rule),
        "type": lambda: any(is_type(value, name) for name in ([rule] if isinstance(rule, str) else rule)),
        "enum": lambda: value in rule,
        "pattern": lambda: not isinstance(value, str) or re.search(rule, value) is not None,
        "minLength": lambda: not isinstance(value, str) or len(value) >= rule,
        "maxLength": lambda: not isinstance(value, str) or len(value) <= rule,
        "minItems": lambda: not isinstance(value, list) or len(value) >= rule,
        "maxItems": lambda: not isinstance(value, list) or len(value) <= rule,
        "maxProperties": lambda: not isinstance(value, dict) or len(value) <= rule,
        "propertyNames": lambda: not isinstance(value, dict) or all(valid(name, rule) for name in value),
        "minimum": lambda: not number or value >= rule,
        "maximum": lambda: not number or value <= rule,
        "exclusiveMinimum": lambda: not number or value > rule,
        "items": lambda: not isinstance(value, list) or all(valid(item, rule) for item in value),
        "properties": lambda: not isinstance(value, dict) or all(valid(value[k], rule[k]) for k in value.keys() & rule),
        "required": lambda: not isinstance(value, dict) or set(rule) <= value.keys(),
        "additionalProperties": lambda: _further(rule, value, schema),
    }
    return bool(checks[word]())


def _further(rule: Any, value: Any, schema: dict[str, Any]) -> bool:
    names = [] if not isinstance(value, dict) else [name for name in value if name not in schema.get("properties", {})]
    return all(isinstance(rule, dict) and valid(value[name], rule) for name in names) if rule is not True else True


def test_the_example_is_valid() -> None:
    assert valid(EXAMPLE, SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"sever": {}},
        {"server": {"prot": 1}},
        {"server": {"port": "many"}},
        {"models": {"m": {"ctx_sise": 1}}},
        {"models": {"m": {"flash_attn": "maybe"}}},
        {"groups": {"g": {"members": []}}},
        {"groups": {"g": {}}},
        {"queue": {"max_waiting": 0}},
    ],
)
def test_what_the_program_refuses_is_not(change: dict[str, Any]) -> None:
    assert not valid({**copy.deepcopy(EXAMPLE), **change}, SCHEMA)


@pytest.mark.parametrize("given", [{"server": {"port": "${env.PORT}"}}, {"models": {}, "queue": None}, {}])
def test_references_and_empty_sections_are(given: dict[str, Any]) -> None:
    assert valid(given, SCHEMA)


@settings(max_examples=40, deadline=None)
@given(configurations())
def test_any_valid_configuration_is(data: dict[str, Any]) -> None:
    assert valid(escape(data), SCHEMA)
