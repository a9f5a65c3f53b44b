"""What a chat template can do, read from its text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """What a chat template can do.

    Attributes:
        tools: it renders tool definitions or tool calls.
        tool_dialect: how calls are written (`hermes`, `mistral`, …); None where unknown or without tools.
        parallel_tools: more than one call per turn; None where the template does not tell.
        thinking: how reasoning is switched: the variable's name, or "always" where it cannot be; None without reasoning.
        preserve_thinking: it can keep the reasoning of earlier turns.
        system_role: it renders a system message.
    """

    tools: bool
    tool_dialect: str | None
    parallel_tools: bool | None
    thinking: str | None
    preserve_thinking: bool
    system_role: bool
