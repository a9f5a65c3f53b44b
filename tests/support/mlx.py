"""The environment with mlx-lm, for tests that run it: `supervisor engine install mlx` makes it."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.engines.mlx.environment import find_python
from tests.support.lacking import lacking


def require_mlx() -> Path:
    """Its interpreter; without it the test is skipped, and failed under CI=true."""
    return find_python(os.environ) or lacking("no mlx-lm: `supervisor engine install mlx` makes an environment with it")
