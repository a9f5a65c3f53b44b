"""The page of placements is what the planner says today, and its lines are what a reader takes them for."""

from __future__ import annotations

import re

from supervisor.core.plan import DoesNotFit, Placement, Policy
from tests.evidence.placement import MODELS, PAGE, PROFILES, answer, text


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == text(), "run: python -m tests.evidence placement"


def test_every_model_is_on_every_machine_once() -> None:
    sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert [section.partition("\n")[0] for section in sections] == list(PROFILES)
    for section in sections:
        for model in MODELS:
            rows = section.count(f"\n| {model} |")
            assert rows + len(re.findall(rf"[ :]{re.escape(model)} \(", section)) == 1, model


def test_layers_in_the_page_are_all_of_the_model() -> None:
    for model in MODELS:
        counts = {
            sum(part.layers for part in found.parts)
            for profile in PROFILES
            if isinstance(found := answer(model, profile), Placement)
        }
        assert len(counts) <= 1, model


def test_another_policy_is_another_page() -> None:
    """The page depends on what it says it depends on."""
    assert isinstance(answer("gpt-oss-120b", "2x24gb"), Placement)
    strict = Policy(cpu_moe=False, partial_offload=False)
    assert isinstance(answer("gpt-oss-120b", "2x24gb", strict), DoesNotFit)
