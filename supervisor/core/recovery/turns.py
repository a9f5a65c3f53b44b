"""What a chat template may not take in a conversation, tools or not: whose turn it is, and turns of tools."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from itertools import pairwise

from supervisor.core.recovery.shapes import items

_SYSTEM = frozenset({"system", "developer"})


class Doubt(Enum):
    """A thing that not every template takes."""

    ORDER = auto()
    """Two turns of one role, or a first one that is not the user's."""
    SYSTEM = auto()
    """A system message."""
    TOOLS = auto()
    """Calls of tools, or their results."""


def doubts_of(messages: object) -> frozenset[Doubt]:
    """Return what is in doubt with a conversation; in linear time, since a client may send thousands of messages."""
    said = [message for message in items(messages) if isinstance(message, Mapping)]
    roles = [str(message.get("role")) for message in said]
    turns = [role for role in roles if role not in _SYSTEM]
    found = set[Doubt]()
    if len(turns) < len(roles):
        found.add(Doubt.SYSTEM)
    if "tool" in turns or any(message.get("tool_calls") for message in said):
        found.add(Doubt.TOOLS)
    if turns[:1] == ["assistant"] or any(one == other != "tool" for one, other in pairwise(turns)):
        found.add(Doubt.ORDER)
    return frozenset(found)
