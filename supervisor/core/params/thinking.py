"""Turn every API's switches of reasoning into variables of the chat template.

Templates disagree on the name of the variable. One that a template does not read changes nothing, so a switch sets all
the names, and this model's template takes its own. What a client says in `chat_template_kwargs` itself counts more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from supervisor.core.params.fates import Fields
from supervisor.errors import InvalidRequest

_VARIABLES: Final = "chat_template_kwargs"
_BUDGET: Final = "thinking_budget_tokens"
_KINDS: Final = ("enabled", "disabled", "adaptive")


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch of reasoning. variables: from name and value, those of the template, and further fields."""

    text: str
    variables: Callable[[str, object], tuple[Fields, Fields]]
    drops: bool = False

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return the fields that the engine gets besides. Raise InvalidRequest."""
        variables, further = self.variables(name, value)
        fields = {key: one for key, one in further.items() if asked.get(key) is None}
        given = asked.get(_VARIABLES)
        if variables and isinstance(given, Mapping | None):
            fields[_VARIABLES] = {**variables, **(given or {})}
        return fields


def _switched(*, on: bool) -> dict[str, object]:
    return {"enable_thinking": on, "thinking": on}


def _flag(name: str, value: object) -> tuple[Fields, Fields]:
    return _switched(on=value is True), {}


def _thinking(name: str, value: object) -> tuple[Fields, Fields]:
    """Read true, false, or an object as Anthropic's, with a budget."""
    if isinstance(value, bool):
        return _flag(name, value)
    told = cast(Mapping[str, object], value)
    kind, budget = told.get("type"), told.get("budget_tokens")
    if kind not in _KINDS:
        raise InvalidRequest(f"`{name}.type` must be one of {', '.join(_KINDS)}.", param=f"{name}.type")
    whole = isinstance(budget, int) and not isinstance(budget, bool) and 0 <= budget < 1 << 31
    if budget is not None and not whole:
        raise InvalidRequest(f"`{name}.budget_tokens` must be a whole number.", param=f"{name}.budget_tokens")
    if kind == "disabled":
        return _switched(on=False), {}
    return _switched(on=True), {} if budget is None else {_BUDGET: budget}


def _effort(name: str, value: object) -> tuple[Fields, Fields]:
    return _switched(on=value != "none"), {}


def _preserved(name: str, value: object) -> tuple[Fields, Fields]:
    """Return the variables that decide whether the reasoning of earlier turns stays; some say when it goes."""
    keeps = value is True
    return {
        **dict.fromkeys(("preserve_thinking", "keep_past_thinking", "preserved_thinking"), keeps),
        **dict.fromkeys(("clear_thinking", "truncate_history_thinking", "drop_thinking"), not keeps),
    }, {}


def _separate(name: str, value: object) -> tuple[Fields, Fields]:
    return {}, {} if value is True else {"reasoning_format": "none"}


ON_OFF: Final = Switch("switches the template's reasoning", _flag)
THINKING: Final = Switch(f"switches the template's reasoning; its budget becomes `{_BUDGET}`", _thinking)
EFFORT: Final = Switch("kept; `none` switches the template's reasoning off, any other on", _effort)
PRESERVED: Final = Switch("keeps the reasoning of earlier turns in the prompt, or not", _preserved)
SEPARATE: Final = Switch("false becomes `reasoning_format` `none`", _separate)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The choice among tools. Templates show tools even to a model that may not call them: `none` takes them away."""

    text: str = "kept; `none` takes the tools out of the prompt"
    drops: bool = False

    def fields(self, name: str, value: object, asked: Fields) -> Fields:
        """Return an empty list of tools for the choice of none."""
        kind = value.get("type") if isinstance(value, Mapping) else value
        return {"tools": []} if kind == "none" and asked.get("tools") else {}


TOOL_CHOICE: Final = ToolChoice()
