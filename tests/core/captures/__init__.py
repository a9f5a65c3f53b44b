"""What programs print on hardware that is not at hand (SOURCES.md)."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
_ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| https://github\.com/\S+ \|$", re.MULTILINE)


def capture(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def sources() -> list[str]:
    """Return the files that SOURCES.md has an address for."""
    return _ROW.findall((HERE / "SOURCES.md").read_text("utf-8"))
