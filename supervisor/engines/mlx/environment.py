"""The environment with mlx-lm: where it is, and which versions of it are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from supervisor.errors import EngineNotFound
from supervisor.system.paths import places

VARIABLE: Final = "SUPERVISOR_MLX_PYTHON"
"""Names the interpreter of another environment."""

DONE: Final = "installed"
"""File in a whole environment, with the digest of the pins that it was made by."""

PINS: Final = Path(__file__).with_name("requirements.txt")
"""Versions with their hashes; `bin/lock` makes it."""


def folder_of(env: Mapping[str, str]) -> Path:
    """Return the folder of the environment, whether it is there or not."""
    return places(env).engines / "mlx"


def interpreter_in(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def find_python(env: Mapping[str, str]) -> Path | None:
    """Return the interpreter that runs mlx-lm; None without one."""
    if named := env.get(VARIABLE):
        return Path(named)
    folder = folder_of(env)
    return interpreter_in(folder) if (folder / DONE).is_file() else None


def require_python(env: Mapping[str, str]) -> Path:
    """Return the same. Raise EngineNotFound without one."""
    found = find_python(env)
    if found is None:
        raise EngineNotFound(
            f"There is no mlx-lm here. `supervisor engine install mlx` gets it; ${VARIABLE} names the Python of an "
            "environment that has it."
        )
    return found
