"""Whether and how calls are looked for: by the request, else the model, else the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core.toolcalls import Options
from supervisor.core.toolmode import TOOL_MODES, ToolMode
from supervisor.errors import InvalidRequest

FIELD = "tool_calls"
"""The field of a request that names a mode; the engine never sees it."""


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """What holds for one request.

    Attributes:
        mode: as asked; `auto` where nobody did.
        offers: tools are offered and may be called, so an answer may hold calls.
    """

    mode: ToolMode
    offers: bool

    @property
    def watches(self) -> bool:
        """Whether the answer has to be looked at."""
        return self.offers and self.mode != "off"

    def options(self, body: Mapping[str, Any]) -> Options:
        """How to recover."""
        return Options(
            enabled=self.mode != "native",
            parallel_tool_calls=body.get("parallel_tool_calls") is not False,
            split_think=self.mode == "raw",
        )


def asked_policy(body: Mapping[str, Any], model: ToolMode | None, default: ToolMode) -> ToolPolicy:
    """The policy for a request; raises InvalidRequest for a mode that there is not."""
    asked = body.get(FIELD)
    if asked is not None and asked not in TOOL_MODES:
        raise InvalidRequest(f"`{FIELD}` must be one of {', '.join(TOOL_MODES)}.", param=FIELD)
    tools = body.get("tools")
    offers = isinstance(tools, list) and bool(tools) and body.get("tool_choice") != "none"
    return ToolPolicy(asked or model or default, offers)
