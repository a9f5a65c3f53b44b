"""Text and values made to fit a schema's types; what fits none stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.toolcalls.jsontext import Number
from supervisor.core.toolcalls.schema import SchemaTypes, fitted, typed
from supervisor.core.toolcalls.tools import Tools


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        *(
            (text, {"boolean"}, value)
            for text, value in [("true", True), ("True", True), ("false", False), ("False", False)]
        ),
        *((text, {"boolean"}, text) for text in ("1", "yes", "TRUE", "")),
        *(
            (text, {"integer"}, value)
            for text, value in [(" 7\n", 7), ("-07", -7), ("3.00", 3), ("000", 0), ("3.5", "3.5")]
        ),
        ("123456789012345", {"integer"}, 123456789012345),
        ("1234567890123456", {"integer"}, Number("1234567890123456")),
        *((text, {"number"}, value) for text, value in [("2", 2), ("2.50", Number("2.50")), ("1e3", Number("1e3"))]),
        *((text, {"number"}, text) for text in ("nan", "inf", "1_000", "0x1")),
        *((text, {"null", "string"}, None) for text in ("null", " None ")),
        ("null", {"string"}, "null"),
        ("nil", {"null", "string"}, "nil"),
        ("[1, 'a']", {"array"}, [1, "a"]),
        ("(1, 2)", {"array"}, [1, 2]),
        ('"[1]"', {"array"}, [1]),
        ("[1]", {"object"}, "[1]"),
        ("[1]", {"string"}, "[1]"),
        ('{"a": true}', {"object", "string"}, {"a": True}),
        ("{'a': }", {"object"}, "{'a': }"),
        (" x ", {"string", "integer"}, " x "),
        (" 5 ", {"string", "integer"}, 5),
    ],
)
def test_text(text: str, types: set[str], value: Any) -> None:
    found = typed(text, frozenset(types))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("given", "types", "value"),
    [
        ("[1]", {"array"}, [1]),
        ("[1]", {"array", "string"}, "[1]"),
        ("[1]", {"object"}, "[1]"),
        ("5", {"integer"}, "5"),
        ({"a": [1]}, {"string"}, '{"a": [1]}'),
        ({"a": 1}, {"object", "string"}, {"a": 1}),
        (5, {"string"}, 5),
    ],
)
def test_values(given: Any, types: set[str], value: Any) -> None:
    assert fitted(given, frozenset(types)) == value


ROOT: dict[str, Any] = {
    "$defs": {"Size": {"type": "integer"}, "a/b": {"type": "array"}, "Self": {"$ref": "#/$defs/Self"}}
}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, {"string"}),
        (True, {"string"}),
        ({"type": "integer"}, {"integer"}),
        ({"type": ["integer", "null", "other", 3]}, {"integer", "null"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"type": "integer", "nullable": "true"}, {"integer"}),
        (
            {"enum": ["a", 1, None, 1.5, True, {}, []]},
            {"string", "integer", "null", "number", "boolean", "object", "array"},
        ),
        ({"const": 5}, {"integer"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"oneOf": [{"const": "x"}, {"$ref": "#/$defs/Size"}]}, {"string", "integer"}),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": ["integer", "null"]}, {}]}, {"integer"}),
        ({"allOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({"$ref": "#/$defs/Size"}, {"integer"}),
        ({"$ref": "#/$defs/a~1b"}, {"array"}),
        ({"$ref": "#/$defs/None"}, {"string"}),
        ({"$ref": "http://example.org/"}, {"string"}),
        ({"$ref": "#/$defs/Self"}, {"string"}),
    ],
)
def test_types_of_a_schema(schema: object, types: set[str]) -> None:
    assert SchemaTypes().of(schema, ROOT) == types


def looping(width: int) -> dict[str, Any]:
    """A schema that refers to itself in every one of many alternatives."""
    return {"$defs": {"Any": {"anyOf": [{"$ref": "#/$defs/Any"}] * width + [{"type": "null"}]}}}


def test_a_schema_that_refers_to_itself_many_times_over_is_read() -> None:
    root = looping(64)  # each read anew, that would be 64 to the power of eight
    assert SchemaTypes().of({"$ref": "#/$defs/Any"}, root) == {"null"}


def test_there_is_an_end_to_reading() -> None:
    types, many, further = SchemaTypes(most=8), {"enum": [*range(20), None]}, {"type": "integer"}
    assert types.of(many, ROOT) == {"integer"}
    assert types.of(further, ROOT) == {"string"}, "nothing known"
    assert SchemaTypes().of({"$ref": "#" + "/$defs" * 1000}, ROOT) == {"string"}


class Watched(dict[str, Any]):
    """A schema that knows whether it was read."""

    was_read = False

    def get(self, key: str, default: Any = None) -> Any:
        self.was_read = True
        return super().get(key, default)


def watched() -> tuple[Tools, list[Watched]]:
    schemas = [Watched(type="object", properties={"a": {"type": "integer"}}) for _ in range(3)]
    return Tools([{"name": f"t{at}", "parameters": schema} for at, schema in enumerate(schemas)]), schemas


def test_the_schema_of_a_tool_is_read_when_it_is_called_and_once() -> None:
    tools, schemas = watched()
    assert tools.longest("t1(") == "t1"
    assert tools.begins("t2")
    assert [schema.was_read for schema in schemas] == [False, False, False]
    for name in ("t1", "functions.t1:0"):
        found = tools.find(name)
        assert found is tools.find("t1")
    assert found is not None
    assert found.types == {"a": {"integer"}}
    assert [schema.was_read for schema in schemas] == [False, True, False]


def test_all_schemas_are_read_at_once_where_that_is_asked_for() -> None:
    tools, schemas = watched()
    tools.read()
    assert all(schema.was_read for schema in schemas)
