"""Which llama-server the tests drive: the one that the program itself would use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from supervisor.errors import EngineError
from supervisor.llamacpp.locate import locate
from supervisor.system.paths import places
from tests.support.lacking import lacking

ONE_THREAD = ("--threads", "1")
"""Tiny models are no faster with more, and several wait for each other by spinning, far longer beside busy programs."""


def find_engine_binary(env: Mapping[str, str]) -> Path:
    """The binary; raises EngineNotFound or EngineUnusable."""
    return locate(places(env), env, None).path


def require_engine_binary() -> Path:
    """The binary; without one the test is skipped, and failed under CI=true. `bin/test` installs one."""
    try:
        return find_engine_binary(os.environ)
    except EngineError as error:
        lacking(f"no engine to drive: {error.message}")
