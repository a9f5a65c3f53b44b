"""Installed the usual way, into an environment of its own; and what happens when the other `supervisor` joins it."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

import supervisor
from tests.bootstrap.conftest import ROOT
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `pip install .` in it."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    pip_install(folder, str(ROOT))
    return folder


def pip_install(environment: Path, *what: str) -> None:
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *what], check=True)


def run(program: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [program, *args], cwd="/", env=env, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", ["supervisor", "llama-supervisor"])
def test_both_commands_are_installed(environment: Path, command: str) -> None:
    done = run(environment / "bin" / command, "--version")
    assert (done.returncode, done.stdout) == (0, f"llama-supervisor {supervisor.__version__}\n"), done.stderr


@pytest.mark.timeout(600)
def test_an_installation_overwritten_by_the_other_distribution_says_so(environment: Path) -> None:
    pip_install(environment, "supervisor")
    for command in ("supervisor", "llama-supervisor"):
        done = run(environment / "bin" / command, "--version")
        assert done.returncode == 1
        assert "The unrelated distribution `supervisor` was installed into" in done.stderr
        assert "Traceback" not in done.stderr
