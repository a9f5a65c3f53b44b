"""Parts of pages that are made: what stands between `<!-- made: NAME -->` and the next `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"(<!-- made: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def blocks(page: Path) -> dict[str, str]:
    """The made parts of a page by name."""
    return {found[2]: found[3] for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))}


def write_blocks(page: Path, made: dict[str, str]) -> None:
    """Put each text in its place. Raises KeyError for a place that nothing is made for."""
    text = page.read_text(encoding="utf-8")
    page.write_text(_BLOCK.sub(lambda found: found[1] + made[found[2]] + found[4], text), encoding="utf-8")


def fenced(kind: str, lines: Iterable[str]) -> str:
    """A code block."""
    return "\n".join([f"```{kind}", *lines, "```"]) + "\n"
