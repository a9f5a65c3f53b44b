"""Switches of reasoning as variables of a template, and the choice of no tool."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.params.fit import fit
from supervisor.errors import InvalidRequest

OFF = {"enable_thinking": False, "thinking": False}
ON = {"enable_thinking": True, "thinking": True}
KEEPS = {"preserve_thinking": True, "keep_past_thinking": True, "preserved_thinking": True}
GOES = {"clear_thinking": False, "truncate_history_thinking": False, "drop_thinking": False}
TOOLS = [{"type": "function"}]


@pytest.mark.parametrize(
    ("asked", "variables", "further"),
    [
        ({"enable_thinking": False}, OFF, {}),
        ({"enable_thinking": True}, ON, {}),
        ({"thinking": False}, OFF, {}),
        ({"thinking": {"type": "disabled"}}, OFF, {}),
        ({"thinking": {"type": "adaptive"}}, ON, {}),
        ({"thinking": {"type": "enabled", "budget_tokens": 64}}, ON, {"thinking_budget_tokens": 64}),
        ({"thinking": {"type": "enabled", "budget_tokens": 64}, "thinking_budget_tokens": 5}, ON, {}),
        ({"reasoning_effort": "none"}, OFF, {}),
        ({"reasoning_effort": "low"}, ON, {}),
        ({"preserve_thinking": True}, KEEPS | GOES, {}),
        (
            {"enable_thinking": False, "chat_template_kwargs": {"thinking": True, "x": 1}},
            {**OFF, "thinking": True, "x": 1},
            {},
        ),
        ({"enable_thinking": False, "preserve_thinking": True}, OFF | KEEPS | GOES, {}),
    ],
    ids=str,
)
def test_a_switch_sets_the_variable_of_every_template(asked: Any, variables: Any, further: Any) -> None:
    assert fit(asked).fields == {"chat_template_kwargs": variables, **further}


def test_the_format_of_reasoning() -> None:
    assert fit({"separate_reasoning": False}).fields == {"reasoning_format": "none"}
    assert not fit({"separate_reasoning": True})


@pytest.mark.parametrize(
    "asked",
    [
        {"thinking": {"type": "on"}},
        {"thinking": {}},
        {"thinking": {"type": "enabled", "budget_tokens": -1}},
        {"thinking": {"type": "enabled", "budget_tokens": True}},
        {"thinking": "on"},
        {"enable_thinking": "true"},
        {"reasoning_effort": 5},
    ],
    ids=str,
)
def test_a_switch_of_another_kind_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        fit(asked)
    assert str(refused.value.param).partition(".")[0] in asked


@pytest.mark.parametrize("choice", ["none", {"type": "none"}], ids=["openai", "anthropic"])
def test_no_tool_is_shown_to_a_model_that_may_call_none(choice: Any) -> None:
    assert fit({"tools": TOOLS, "tool_choice": choice}).fields == {"tools": []}
    assert not fit({"tools": [], "tool_choice": choice})


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "none"}}], ids=str)
def test_tools_that_may_be_called_stay(choice: Any) -> None:
    assert not fit({"tools": TOOLS, "tool_choice": choice})
