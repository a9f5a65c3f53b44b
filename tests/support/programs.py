"""Programs of the test environment."""

from __future__ import annotations

import sys
from pathlib import Path


def beside_python(name: str) -> Path:
    """Return a program that the environment's packages bring."""
    return Path(sys.executable).parent / name
