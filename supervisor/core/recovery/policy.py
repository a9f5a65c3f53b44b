"""Decide whether and how calls are looked for: by the request, else the model, else the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.core.recovery.shapes import mapping
from supervisor.core.toolcalls import Options
from supervisor.core.toolcalls.mode import TOOL_MODES, ToolMode
from supervisor.errors import InvalidRequest

FIELD = "tool_calls"
"""The field of a request that names a mode; the engine never sees it."""


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """The policy of one request whose answer is watched."""

    mode: ToolMode

    def options(self, body: Mapping[str, object]) -> Options:
        """Return the options of recovery."""
        return Options(
            enabled=self.mode != "native",
            parallel_tool_calls=body.get("parallel_tool_calls") is not False,
            split_think=self.mode == "raw",
        )


def asked_mode(body: Mapping[str, object], model: ToolMode | None, default: ToolMode) -> ToolMode:
    """Return the mode for a request. Raise InvalidRequest for a mode that does not exist."""
    asked = body.get(FIELD)
    if asked is None:
        return model or default
    for mode in TOOL_MODES:
        if asked == mode:
            return mode
    raise InvalidRequest(f"`{FIELD}` must be one of {', '.join(TOOL_MODES)}.", param=FIELD)


def offers_tools(chat: Mapping[str, object]) -> bool:
    """Return whether tools are offered and may be called, so that the answer may hold calls."""
    tools = chat.get("tools")
    return isinstance(tools, list) and bool(tools) and chat.get("tool_choice") != "none"


def only_named(chat: Mapping[str, object]) -> dict[str, object]:
    """Return the named tool as the only one, which must be called: the engine takes no name as `tool_choice`."""
    choice, tools = chat.get("tool_choice"), chat.get("tools")
    name = mapping(mapping(choice).get("function")).get("name")
    if name is None or not isinstance(tools, list):
        return {}
    named = [one for one in tools if isinstance(one, Mapping) and mapping(one.get("function")).get("name") == name]
    return {"tools": named[:1], "tool_choice": "required"} if named else {}
