"""Which name was meant: only one that is near, and a longer one first."""

from __future__ import annotations

import pytest

from supervisor.cli.registry import VERBS
from supervisor.core.text.nearest import did_you_mean


@pytest.mark.parametrize("typed", ["show", "kill", "info", "x", "quit", "down", ""])
def test_a_word_that_is_like_no_name_gets_no_suggestion(typed: str) -> None:
    assert did_you_mean(typed, VERBS.records) == ""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("laod", "load"), ("LOAD", "load"), ("est", "estimate"), ("mod", "models"), ("unlod", "unload"), ("pl", "plan")],
)
def test_the_name_that_was_meant(typed: str, meant: str) -> None:
    assert did_you_mean(typed, VERBS.records) == f"; did you mean {meant}?"


def test_a_name_that_begins_with_what_was_typed_comes_before_a_shorter_one_that_is_more_alike() -> None:
    assert did_you_mean("ctx", ("cts", "ctx_size")) == "; did you mean ctx_size?"
    assert did_you_mean("qwen3", ("qwen2", "Qwen3-Coder-30B", "Qwen3-4B")) == "; did you mean Qwen3-4B?"


def test_what_is_longer_than_any_slip_gets_no_suggestion() -> None:
    assert did_you_mean("load" * 65, ("load" * 64,)) == ""


def test_letters_in_common_count_however_they_are_apart() -> None:
    assert did_you_mean("gwen-coder-30b", ("qwen3-coder-30b", "gemma-4b")) == "; did you mean qwen3-coder-30b?"


def test_of_very_many_names_some_are_not_compared() -> None:
    many = [f"{number:03}{'a' * 240}" for number in range(100)]
    assert did_you_mean("z" * 199 + "y", ["z" * 200]) == f"; did you mean {'z' * 200}?"
    assert did_you_mean("z" * 199 + "y", [*many, "z" * 200]) == ""
