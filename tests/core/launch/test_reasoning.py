"""Reasoning where nobody says: off for small models that were not made for it."""

from __future__ import annotations

import pytest

from supervisor.core.gguf import GgufValue
from supervisor.core.launch import LaunchOptions, ModelFacts
from supervisor.core.launch.facts import facts_of
from tests.core.launch.test_build import FLAGS, launch, without
from tests.support.headers import header

SMALL = ModelFacts(thinks=False)


def reasoning(options: LaunchOptions, facts: ModelFacts = SMALL) -> tuple[str, ...]:
    argv = launch(options, facts, FLAGS).argv
    return argv[argv.index("--reasoning") :][:2] if "--reasoning" in argv else ()


@pytest.mark.parametrize(
    ("architecture", "width", "thinks"),
    [
        ("qwen35", 2560, False),
        ("qwen35", 4096, None),
        ("qwen35moe", 2048, None),
        ("llama", 2048, None),
        ("qwen3", 1024, None),
    ],
)
def test_families_that_do_not_reason_unasked(architecture: str, width: int, thinks: bool | None) -> None:
    keys: dict[str, GgufValue] = {"general.architecture": architecture, f"{architecture}.embedding_length": width}
    assert facts_of(header(keys)).thinks is thinks


def test_a_small_model_starts_with_reasoning_off() -> None:
    assert reasoning(LaunchOptions()) == ("--reasoning", "off")
    assert reasoning(LaunchOptions(), ModelFacts()) == ()


@pytest.mark.parametrize(
    "options",
    [
        LaunchOptions(reasoning="on"),
        LaunchOptions(reasoning="auto"),
        LaunchOptions(reasoning_budget=100),
        LaunchOptions(reasoning_effort="low"),
        LaunchOptions(chat_template_kwargs={"enable_thinking": True}),
        LaunchOptions(chat_template="x"),
    ],
    ids=repr,
)
def test_what_is_set_counts_more(options: LaunchOptions) -> None:
    assert reasoning(options)[1:] != ("off",)


def test_a_build_without_the_option_keeps_its_default() -> None:
    assert "--reasoning" not in launch(LaunchOptions(), SMALL, without("--reasoning")).argv
