"""The map in docs/architecture.md, made from the packages' docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from tests.support.made import ROOT

PAGE = ROOT / "docs" / "architecture.md"
TABLE = re.compile(r"\| package \| what it is for \|\n\|---\|---\|\n(?:\|.*\|\n)+")


def table(floors: Iterable[str]) -> str:
    """One row for each package, from the ground up, with the first paragraph of its docstring."""
    rows = [f"| `{floor.replace('.', '/')}` | {purpose(floor)} |" for floor in floors]
    return "\n".join(["| package | what it is for |", "|---|---|", *rows]) + "\n"


def purpose(floor: str) -> str:
    """The first paragraph of a package's docstring, on one line."""
    path = ROOT / "supervisor" / floor.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    words = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return " ".join(words.partition("\n\n")[0].split())
