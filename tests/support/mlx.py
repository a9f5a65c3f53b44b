"""An environment with mlx-lm, for tests that ask it for its own figures.

    python -m tests.support.mlx    makes it in the cache folder, unless it is there already

`MLX_PYTHON` names the interpreter of another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

from supervisor.system.paths import places
from tests.support.lacking import lacking

_PACKAGES = ("mlx[cpu]==0.32.4" if sys.platform == "linux" else "mlx==0.32.4", "mlx-lm==0.32.2")
_DONE = "installed"


def find_mlx() -> Path | None:
    """Return its interpreter; None where there is none."""
    named = os.environ.get("MLX_PYTHON")
    if named:
        return Path(named)
    return _python() if (_folder() / _DONE).is_file() else None


def require_mlx() -> Path:
    """Return the same; without it the test is skipped, and failed under CI=true."""
    return find_mlx() or lacking("no mlx-lm: `python -m tests.support.mlx` makes an environment with it")


def build() -> None:
    """Make the environment."""
    venv.create(_folder(), with_pip=True, clear=True)
    install = [str(_python()), "-I", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *_PACKAGES]
    subprocess.run(install, check=True)
    (_folder() / _DONE).touch()


def _folder() -> Path:
    return places(os.environ).cache / "mlx-tests"


def _python() -> Path:
    return _folder() / "bin" / "python"


if __name__ == "__main__" and find_mlx() is None:
    build()
