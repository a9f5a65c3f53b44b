"""The table of dialects in docs/toolcalls.md, made from their records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from supervisor.core.toolcalls import REGISTRY
from supervisor.core.toolcalls.dialect import Dialect

PAGE = Path(__file__).parents[2] / "docs" / "toolcalls.md"
_TABLE = re.compile(r"\| id \| models \|\n\|---\|---\|\n(?:\|.*\|\n?)+")


def table(dialects: Mapping[str, Dialect] = REGISTRY.dialects) -> str:
    """The table, by id."""
    rows = [f"| `{name}` | {dialects[name].models} |" for name in sorted(dialects)]
    return "\n".join(["| id | models |", "|---|---|", *rows]) + "\n"


def shown() -> str:
    """The table as the page has it."""
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    return found[0] if found else ""


def write() -> None:
    """Write the table anew."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.replace(shown(), table()), encoding="utf-8")
