"""The table of relayed paths in docs/rest.md, made from their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisor.core.routes import ASKED, DOORS, ROUTES, Asked, Route
from tests.support.made import ROOT, Made

_HEAD = "| path | also as | what it does |\n|---|---|---|\n"


def table(routes: Iterable[Route] = (*ROUTES, *DOORS), asked: Iterable[Asked] = ASKED) -> str:
    """The table, in the order of the rows."""
    posted = [f"| `POST {row.path}` | {_named(row.also)} | {row.summary} |" for row in routes]
    queried = [f"| `{method} {row.path}?model=` | | {said} |" for row in asked for method, said in row.summary.items()]
    return _HEAD + "\n".join([*posted, *queried]) + "\n"


def _named(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


TABLE = Made(ROOT / "docs" / "rest.md", re.compile(re.escape(_HEAD) + r"(?:\|.*\|\n?)+"), table)
