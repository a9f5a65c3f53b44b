"""The table of errors in docs/rest.md and the tree in supervisor/errors, made from the classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from supervisor import errors
from supervisor.core.engine_output.failures import MEANINGS
from tests.support.made import ROOT, Made

Kind: TypeAlias = type[errors.SupervisorError]


def error_classes(
    kind: type[errors.SupervisorError] = errors.SupervisorError,
) -> Iterator[type[errors.SupervisorError]]:
    """Every error with a code of its own, as the tree in supervisor/errors has them."""
    if "code" in vars(kind):
        yield kind
    for below in kind.__subclasses__():
        yield from error_classes(below)


def table() -> str:
    """The table; the causes of a failed load stand behind their class."""
    lines = ["| code | status | |", "|---|---|---|"]
    for kind in error_classes():
        lines.append(_line(kind.code, kind.status, " ".join((kind.__doc__ or "").partition("\n\n")[0].split())))
        if kind is errors.ModelLoadFailed:
            lines += [_line(code, kind.status, meaning) for code, meaning in MEANINGS.items()]
    return "\n".join(lines) + "\n"


def tree(kind: Kind = errors.SupervisorError, lead: str = "") -> list[str]:
    """The classes below one another, each with its code where it has one of its own."""
    code = vars(kind).get("code", "")
    name = f"{lead}{kind.__name__}"
    lines = [f"{name:35} {code}".rstrip()]
    lead = lead.replace("├─ ", "│  ").replace("└─ ", "   ")
    below = [one for one in kind.__subclasses__() if one.__module__.startswith(errors.__name__)]
    for one in below:
        lines += tree(one, lead + ("└─ " if one is below[-1] else "├─ "))
    return lines


def drawn() -> str:
    """The tree as one text."""
    return "\n".join(tree()) + "\n"


def _line(code: str, status: int, meaning: str) -> str:
    return f"| `{code}` | {status} | {meaning} |"


PAGE = ROOT / "docs" / "rest.md"
TABLE = Made(PAGE, re.compile(r"\| code \| status \| \|\n\|---\|---\|---\|\n(?:\|.*\|\n)+"), table)
TREE = Made(Path(errors.__file__), re.compile(r"(?<=\n\n)SupervisorError .*\n(?:.*\S.*\n)+?(?=\n|\"\"\")"), drawn)
