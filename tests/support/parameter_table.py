"""The table of parameters in docs/parameters.md, made from their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisor.core.params.fit import PARAMETERS
from supervisor.core.params.ollama import OLLAMA
from supervisor.core.params.rows import Parameter
from tests.support.made import ROOT, Made

_HEAD = "| parameter | whose | value | what becomes of it |\n|---|---|---|---|\n"


def table(rows: Iterable[Parameter] = PARAMETERS.values()) -> str:
    """A line for each parameter, in the order of the rows."""
    lines = [f"| `{row.name}` | {row.whose} | {_value(row.kind.text)} | {row.fate.text} |" for row in rows]
    return _HEAD + "\n".join(lines) + "\n"


def _value(text: str) -> str:
    """What a value is, words of it as code and without an article."""
    return re.sub(r'"([^"]*)"', r"`\1`", re.sub(r"\b(?:a|an) (?=number|whole|text|list|object)", "", text))


_OPTIONS_HEAD = "| option | value | what becomes of it |\n|---|---|---|\n"


def options(rows: Iterable[Parameter] = OLLAMA) -> str:
    """A line for each option of Ollama's API, in the order of the rows."""
    lines = [f"| `{row.name}` | {_value(row.kind.text)} | {row.fate.text} |" for row in rows]
    return _OPTIONS_HEAD + "\n".join(lines) + "\n"


OPTIONS = Made(ROOT / "docs" / "ollama.md", re.compile(re.escape(_OPTIONS_HEAD) + r"(?:\|.*\|\n?)*"), options)
TABLE = Made(ROOT / "docs" / "parameters.md", re.compile(re.escape(_HEAD) + r"(?:\|.*\|\n?)*"), table)
