"""Which llama-server the tests drive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

VARIABLE = "SUPERVISOR_LLAMA_SERVER"


def find_engine_binary(env: Mapping[str, str]) -> Path | None:
    """$SUPERVISOR_LLAMA_SERVER, else a llama-server on PATH."""
    found = env.get(VARIABLE) or shutil.which("llama-server", path=env.get("PATH"))
    return Path(found) if found else None


def require_engine_binary() -> Path:
    """The binary; without one the test is skipped, and failed under CI=true."""
    found = find_engine_binary(os.environ)
    if found is not None and found.is_file():
        return found
    reason = f"no llama-server: set {VARIABLE} (looked at {found})" if found else f"no llama-server: set {VARIABLE}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
