"""Members of a JSON object that are set or taken out, and the others, which stay as they were written."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.text.foreignjson import escaped, parse
from supervisor.core.text.members import set_fields, without

NAMES = ("a", "b", "\u00e9", '"', "}", "")
OBJECTS = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=4)
SPACE = st.sampled_from(["", " ", "\r\n\t"])
WRITTEN = st.sampled_from([
    *("1e999", "-1E+400", "9007199254740993", "-0.0", "1.10", "null", "true"),
    *(r'"\u00e9\/\ud83d"', '"\u00e9\u2028"', '", "', r'"\\"', "[ 1,\t2 ]", '{ "a" : {"b":"}"} }', "[]", "{}"),
])
"""Values that a parser and a writer would write in another way, and such that look like more than one."""
KEYS = st.sampled_from([json.dumps(name) for name in NAMES] + ['"\u00e9"', r'"\u0061"', r'"\ud83d"'])
MEMBERS = st.lists(st.tuples(KEYS, SPACE, WRITTEN, SPACE), max_size=5)


@given(MEMBERS, st.frozensets(st.sampled_from(NAMES)), SPACE)
def test_what_is_not_taken_out_stays_to_the_byte(
    members: list[tuple[str, str, str, str]], names: frozenset[str], space: str
) -> None:
    texts = [(key, f"{key}{before}:{after}{value}") for key, before, value, after in members]
    spaced = [(key, f"{space}{text}{space}") for key, text in texts]
    body = space + "{" + ",".join(text for _, text in spaced) + "}" + space
    left = without(body.encode(), names)
    assert left == f"{{{','.join(text for key, text in spaced if json.loads(key) not in names)}}}".encode()
    assert parse(left) == {name: value for name, value in parse(body).items() if name not in names}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le"])
def test_what_is_left_of_another_encoding_is_utf_8(encoding: str) -> None:
    assert without('{"a": "\u00e9", "b": 1}'.encode(encoding), {"b"}) == '{"a": "\u00e9"}'.encode()


@given(OBJECTS, OBJECTS, st.sampled_from(["", " ", "\r\n"]), st.sampled_from([None, 2]))
def test_set_fields_overrides(body: dict[str, Any], changes: dict[str, Any], space: str, indent: int | None) -> None:
    raw = (space + json.dumps(body, indent=indent) + space).encode()
    assert json.loads(set_fields(raw, changes)) == {**body, **changes}


def test_nothing_else_of_the_body_is_touched() -> None:
    raw = b'{"seed": 12345678901234567890, "x": "\\ud83d\\ude00 }", "temperature": 1e-2}'
    assert set_fields(raw, {}) is raw
    assert set_fields(raw, {"stream": True}) == raw[:-1] + b',"stream":true}'


def test_what_is_written_anew_is_json() -> None:
    """Python would write `Infinity`, which nobody else reads."""
    assert (
        escaped({"far": math.inf, "near": [-math.inf, {"nan": math.nan}]})
        == b'{"far": null, "near": [null, {"nan": null}]}'
    )
    assert escaped("\ud83d\u00e9") == b'"\\ud83d\\u00e9"'
