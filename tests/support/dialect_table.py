"""The table of dialects in docs/toolcalls.md, made from their records."""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.core.toolcalls import REGISTRY
from supervisor.core.toolcalls.dialect import Dialect
from tests.support.made import ROOT, Made


def table(dialects: Mapping[str, Dialect] = REGISTRY.dialects) -> str:
    """The table, by id."""
    rows = [f"| `{name}` | {dialects[name].models} |" for name in sorted(dialects)]
    return "\n".join(["| id | models |", "|---|---|", *rows]) + "\n"


PAGE = ROOT / "docs" / "toolcalls.md"
TABLE = Made(PAGE, re.compile(r"\| id \| models \|\n\|---\|---\|\n(?:\|.*\|\n?)+"), table)
