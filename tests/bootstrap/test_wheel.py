"""The built wheel in a bare environment, without a checkout: it runs the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bootstrap.conftest import ROOT, uv_folder
from tests.support.daemon import NO_HUB, scratch_home
from tests.support.patience import PATIENCE


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the locked packages and the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    uv, python = str(uv_folder() / "uv"), str(folder / "bare" / "bin" / "python")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder / "bare")], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "--require-hashes", "-r", str(ROOT / "requirements" / "runtime.txt")], check=True)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    return folder / "bare" / "bin"


@pytest.fixture
def env(programs: Path, engine_binary: Path) -> Iterator[dict[str, str]]:
    """A user's environment: nothing of the checkout is in it."""
    with scratch_home() as home:
        (home / "run").mkdir(mode=0o700)
        (home / "any-port.yaml").write_text("server: {port: 0}\n")
        yield {
            **NO_HUB,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "SUPERVISOR_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "SUPERVISOR_CONFIG": str(home / "any-port.yaml"),
            "SUPERVISOR_LLAMA_SERVER": str(engine_binary),
        }


@pytest.mark.engine
@pytest.mark.parametrize("command", ["supervisor", "llama-supervisor"])
def test_the_wheel_runs_the_demo_in_a_bare_environment(programs: Path, env: dict[str, str], command: str) -> None:
    try:
        done = run(programs / command, "demo", "--json", env=env)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert "built-in model" in told["answer"]
        assert told["tool_call"]["name"] == "get_weather"
        assert told["url"].startswith("http://127.0.0.1:")
    finally:
        run(programs / command, "stop", env=env)


def test_the_program_comes_from_the_wheel(programs: Path) -> None:
    code = "import supervisor, sys; print(supervisor.__file__)"
    done = run(programs / "python", "-c", code, env={"PATH": os.environ["PATH"]})
    assert Path(done.stdout.strip()).is_relative_to(programs.parent)


def test_the_bare_environment_lacks_nothing(programs: Path) -> None:
    """What the metadata of the wheel asks for is what the lock gives."""
    uv = str(uv_folder() / "uv")
    done = run(uv, "pip", "check", "--python", str(programs / "python"), env=dict(os.environ))
    assert done.returncode == 0, done.stderr


def run(program: Path | str, *args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *args], cwd="/", env=env, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
