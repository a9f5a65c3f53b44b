"""Bounds of parameters, and what becomes of other servers' names."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.params.engine import ENGINE
from supervisor.core.params.fates import Refused, Renamed
from supervisor.core.params.fit import PARAMETERS, fit
from supervisor.core.params.foreign import FOREIGN
from supervisor.errors import InvalidRequest

OUT_OF_BOUNDS: tuple[tuple[str, Any, str], ...] = (
    ("temperature", -1, "a number of at least 0; it is -1"),
    ("temperature", "hot", 'it is "hot"'),
    ("temperature", True, "it is true"),
    ("temperature", float("inf"), "a number"),
    ("top_p", 7, "from 0 to 1"),
    ("min_p", -0.1, "from 0 to 1"),
    ("top_k", -2, "a whole number of at least -1"),
    ("top_k", 1.5, "a whole number"),
    ("top_k", 1 << 31, "a whole number"),
    ("max_tokens", "5", "a whole number"),
    ("max_tokens", -2, "at least -1"),
    ("max_completion_tokens", [5], "it is a list"),
    ("repeat_penalty", 0, "above 0"),
    ("repetition_penalty", 0, "above 0"),
    ("presence_penalty", 2.5, "from -2 to 2"),
    ("dry_base", 0.5, "at least 1"),
    ("adaptive_target", 2, "at most 1"),
    ("adaptive_decay", 1, "from 0 to 0.99"),
    ("mirostat", 3, "from 0 to 2"),
    ("n", 0, "at least 1"),
    ("top_logprobs", 21, "from 0 to 20"),
    ("seed", 0.5, "a whole number"),
    ("stop", [1], "a text or a list of texts"),
    ("stop", {"a": 1}, "it is an object"),
    ("stream", "yes", "true or false"),
    ("grammar", {"type": "regex"}, "a text"),
    ("tools", {}, "a list of objects"),
    ("chat_template_kwargs", "x", "an object"),
    ("reasoning_format", "think", '"deepseek-legacy"'),
    ("dry_sequence_breakers", [], "at least 1"),
    ("temperature", 10**400, "…"),
)


@pytest.mark.parametrize(("name", "value", "bound"), OUT_OF_BOUNDS, ids=[f"{one[0]}-{one[2]}" for one in OUT_OF_BOUNDS])
def test_a_value_out_of_bounds_is_refused_with_its_name_and_bound(name: str, value: Any, bound: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        fit({"model": "m", name: value})
    assert refused.value.param == name
    assert refused.value.message.startswith(f"`{name}` must be ")
    assert bound in refused.value.message
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    "asked",
    [
        {"temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0.0, "seed": -1, "max_tokens": 7.0},
        {"temperature": None, "stop": None, "n": None, "tools": None},
        {"stop": "x", "logprobs": True, "top_logprobs": 20, "logit_bias": {"5": -100}},
        {"stop": ["x", "y"], "logprobs": 5, "logit_bias": [[5, False]], "seed": 1 << 62},
        {"temperature": 5, "tool_choice": {"type": "auto"}, "user": "me", "unknown": object()},
    ],
    ids=["edges", "null", "openai", "llama", "free"],
)
def test_what_is_within_bounds_passes_untouched(asked: dict[str, Any]) -> None:
    assert not fit(asked)


RENAMED = [row for row in PARAMETERS.values() if isinstance(row.fate, Renamed)]


@pytest.mark.parametrize("row", RENAMED, ids=[row.name for row in RENAMED])
def test_another_name_becomes_the_engines_unless_that_is_given(row: Any) -> None:
    assert row.fate.to in PARAMETERS
    assert fit({row.name: 3}).fields == {row.fate.to: 3}
    assert not fit({row.name: 3, row.fate.to: 4})
    assert fit({row.name: 3, row.fate.to: None}).fields == {row.fate.to: 3}


REFUSED = [row for row in PARAMETERS.values() if isinstance(row.fate, Refused)]
SAMPLES: tuple[Any, ...] = (2, True, "x", [1], {"a": 1}, False)


@pytest.mark.parametrize("row", REFUSED, ids=[row.name for row in REFUSED])
def test_what_cannot_be_done_is_refused_unless_it_asks_for_nothing(row: Any) -> None:
    assert not fit({row.name: None}).fields
    for harmless in row.fate.unless:
        assert not fit({row.name: harmless}).fields
    wanted = next(one for one in SAMPLES if row.kind.admits(one) and one not in row.fate.unless)
    with pytest.raises(InvalidRequest, match=f"`{row.name}` cannot be done by llama-server. {row.fate.instead}"):
        fit({row.name: wanted})


def test_what_asks_for_nothing_and_the_engine_would_refuse_is_taken_out() -> None:
    assert fit({"best_of": 1, "suffix": None}).dropped == {"best_of", "suffix"}


SHAPE = {"type": "json_schema", "json_schema": {"schema": {"a": 1}}}


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({"guided_json": {"type": "object"}}, {"json_schema": {"type": "object"}}),
        ({"guided_json": '{"type": "array"}'}, {"json_schema": {"type": "array"}}),
        ({"guided_choice": ["yes", 'n"o\n']}, {"grammar": 'root ::= "yes" | "n\\x22o\\x0A"\n'}),
        ({"guided_regex": "ab+"}, {"grammar": 'root ::= "a" "b"+\n'}),
        ({"regex": "a"}, {"grammar": 'root ::= "a"\n'}),
        ({"guided_grammar": 'root ::= "x"'}, {"grammar": 'root ::= "x"'}),
        ({"ebnf": "x", "response_format": {"type": "text"}}, {"grammar": "x"}),
        ({"structured_outputs": {"choice": ["a"], "regex": None}}, {"grammar": 'root ::= "a"\n'}),
        ({"structured_outputs": {"json_object": True}}, {"json_schema": {"type": "object"}}),
        ({"structured_outputs": {"whitespace_pattern": "x"}}, {}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"a": 1}}, "verbosity": "low"}},
            {"response_format": SHAPE},
        ),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"text": {"format": {"type": "text"}}, "response_format": {"type": "json_object"}}, {}),
        ({"text": {"verbosity": "low"}}, {}),
        ({"text": "a text"}, {}),
        ({"output_format": {"type": "json_schema", "schema": {"a": 1}}}, {"response_format": SHAPE}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}, "effort": "low"}},
            {"response_format": SHAPE, "reasoning_effort": "low"},
        ),
        ({"output_config": {"effort": "low"}, "grammar": "x"}, {"reasoning_effort": "low"}),
    ],
)
def test_a_constraint_becomes_one_of_the_engine(asked: dict[str, Any], fields: dict[str, Any]) -> None:
    assert fit(asked).fields == fields


@pytest.mark.parametrize(
    "asked",
    [
        {"guided_json": "{"},
        {"guided_json": "[]"},
        {"guided_choice": []},
        {"guided_choice": ["x"] * 1001},
        {"guided_choice": ["x" * (1 << 17)]},
        {"guided_choice": ["\ud83d"]},
        {"guided_regex": "(?=x)"},
        {"structured_outputs": {"json": {}, "regex": "x"}},
        {"structured_outputs": {"structural_tag": "x"}},
        {"structured_outputs": {"regex": 5}},
        {"guided_regex": "x", "guided_json": {}},
        {"text": {"format": "json"}},
        {"text": {"format": {"type": "grammar"}}},
        {"output_format": {"type": "json_schema"}},
        {"output_config": {"effort": 5}},
        {"guided_regex": "x", "grammar": "x"},
        {"guided_regex": "x", "response_format": {"type": "json_object"}},
    ],
    ids=str,
)
def test_a_constraint_that_cannot_be_kept_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        fit(asked)
    assert str(refused.value.param).partition(".")[0] in asked


def test_a_text_in_the_place_of_a_large_field_is_the_engines_to_judge() -> None:
    assert not fit({"logit_bias": "mark", "stop": "mark"}, opaque=True)
    with pytest.raises(InvalidRequest, match="`guided_regex` cannot be read"):
        fit({"guided_regex": "mark"}, opaque=True)
    with pytest.raises(InvalidRequest):
        fit({"temperature": -1}, opaque=True)


def test_every_name_stands_once() -> None:
    assert len(PARAMETERS) == len(ENGINE) + len(FOREIGN)


@pytest.mark.parametrize("kind", [[], {}, 1])
def test_a_format_of_no_known_type_is_a_constraint(kind: object) -> None:
    with pytest.raises(InvalidRequest, match="both say what form"):
        fit({"guided_choice": ["a"], "response_format": {"type": kind}})
