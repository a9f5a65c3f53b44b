"""JSON as models write it: what is mended, and what is not."""

from __future__ import annotations

import pytest

from supervisor.core.toolcalls.jsonscan import read_json
from supervisor.core.toolcalls.source import finished


@pytest.mark.parametrize(
    ("written", "mended"),
    [
        ('[{"a": 1} {"b": 2}]', '[{"a": 1}, {"b": 2}]'),
        ('[{"a": 1}{"b": 2}, 3]', '[{"a": 1}, {"b": 2}, 3]'),
        ('[1 {"b": 2}]', '[1, {"b": 2}]'),
        ("[1 2]", None),
        ("[[1] [2]]", None),
        ('{"a": {"b": 1} {"c": 2}}', None),
    ],
)
def test_objects_of_an_array_may_lack_a_comma(written: str, mended: str | None) -> None:
    assert finished(read_json(written)) == mended


@pytest.mark.parametrize(
    ("written", "mended"),
    [
        ('{{"a": 1}}', '{"a": 1}'),
        ('{{"a": 1}', '{"a": 1}'),
        ('{{"a": [1]}}', '{"a": [1]}'),
        ('{{"a": 1]', None),
        ('{{"a": 1}, "b": 2}', None),
        ('{"b": 2, {"a": 1}}', None),
        ('{,{"a": 1}}', None),
    ],
)
def test_a_bracket_may_be_doubled_at_the_beginning(written: str, mended: str | None) -> None:
    assert finished(read_json(written)) == mended


@pytest.mark.parametrize(
    ("written", "mended"),
    [
        ('{"a": [1}', '{"a": [1]}'),
        ('{"a": [{"b": 1]}', '{"a": [{"b": 1}]}'),
        ('[{"a": 1]', '[{"a": 1}]'),
        ('{"a": 1]', None),
        ("[1}", None),
        ("}", None),
    ],
)
def test_a_closing_bracket_closes_what_is_open_inside_of_its_own(written: str, mended: str | None) -> None:
    assert finished(read_json(written)) == mended


@pytest.mark.parametrize("written", ["{{}{}", "{{}{}}", "{{}{}{}{}", '{{"a": 1}{"b": 2}}', "{{}: 1}", '{{} "a": 1}'])
def test_a_doubled_bracket_holds_one_object(written: str) -> None:
    assert finished(read_json(written)) is None
