"""Texts as models write them, and what is to become of each; written by hand from what the formats are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def tool(name: str, required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    """A tool as a request offers it."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": f"{name} it", "parameters": schema}}


STRING = {"type": "string"}
TOOLS = [
    tool("get_weather", ("city",), city=STRING, days={"type": "integer"}),
    tool("get_time", zone=STRING),
    tool("write_file", ("path", "content"), path=STRING, content=STRING),
    tool("ping"),
    tool(
        "search",
        ("query",),
        query=STRING,
        limit={"type": "integer"},
        ratio={"type": "number"},
        exact={"type": "boolean"},
        tags={"type": "array", "items": STRING},
        filter={"type": "object"},
        note={"type": ["string", "null"]},
    ),
    tool("mcp__fs__read-file", ("path",), path=STRING),
]

PARIS = ("get_weather", {"city": "Paris"})
ROME = ("get_weather", {"city": "Rome"})
NOON = ("get_time", {"zone": "UTC"})
PING: tuple[str, dict[str, Any]] = ("ping", {})


@dataclass(frozen=True, repr=False)
class Case:
    """One answer.

    Attributes:
        id: names the dialect's row (`D…`), the malformation (`M…`) or what must not be found (`N…`).
        calls: name and arguments of each, in order.
        dialect: of the first call.
    """

    id: str
    text: str
    calls: tuple[tuple[str, Any], ...] = ()
    content: str = ""
    reasoning: str = ""
    dialect: str | None = None
    finish: str = "stop"
    reasoning_in: str = ""
    tools: Any = field(default_factory=lambda: TOOLS)
    choice: Any = None
    ids: tuple[str, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.id} {self.text!r} {self.finish}>"
