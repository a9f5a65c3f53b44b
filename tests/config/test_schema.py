"""The schema for editors says yes to what the program takes: the example, and any valid configuration."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from supervisor.config.document import read_document
from supervisor.config.editors import editor_schema
from tests.config.strategies import configurations, escape

SCHEMA: dict[str, Any] = dict(editor_schema())
EXAMPLE = read_document((Path(__file__).parents[2] / "config.example.yaml").read_text(encoding="utf-8")).data
VALIDATOR = Draft202012Validator(SCHEMA)


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_example_is_valid() -> None:
    assert VALIDATOR.is_valid(EXAMPLE)


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
    assert not VALIDATOR.is_valid({**copy.deepcopy(EXAMPLE), **change})


@pytest.mark.parametrize(
    "given",
    [
        {"server": {"port": "${env.PORT}"}},
        {"models": {"m": {"rope_scale": "${env.SCALE}"}}},
        {"models": {"m": {"jinja": "${env.JINJA}"}}},
        {"models": {"m": {"flash_attn": "${env.ATTENTION}"}}},
        {"models": {"m": {"parallel": "${env.SLOTS}"}}},
        {"models": {}, "queue": None},
        {},
    ],
)
def test_references_and_empty_sections_are(given: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(given)


@settings(max_examples=40, deadline=None)
@given(configurations())
def test_any_valid_configuration_is(data: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(escape(data))
