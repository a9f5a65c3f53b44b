"""The command line as its users meet it: a process with an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from supervisor.system.owned import own_folder
from tests.fakes.fake_daemon import FakeDaemon
from tests.support.daemon import NO_HUB
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs `supervisor …` with a scratch home."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.state = folder / "home"
        own = ("SUPERVISOR_", "XDG_", "HF_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        self.env = {
            **kept,
            **NO_HUB,
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "SUPERVISOR_HOME": str(self.state),
            "SUPERVISOR_ENGINES": str(folder / "engines"),
            "XDG_RUNTIME_DIR": _runtime(folder).name,
            **env,
        }

    def __call__(self, *arguments: str, stdin: str | None = None) -> Outcome:
        done = subprocess.run(
            self.argv(*arguments),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.folder,
            timeout=PATIENCE,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The same, running; its output is text on pipes."""
        return subprocess.Popen(
            self.argv(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=self.folder,
        )

    @staticmethod
    def argv(*arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "supervisor", *arguments]


@cache
def _runtime(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A short folder for each home, as sockets live below it: with a long one all homes would share the system's."""
    return tempfile.TemporaryDirectory(prefix="run-")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def daemon(cli: Cli) -> Iterator[FakeDaemon]:
    """A scripted daemon that `cli` finds through its endpoint file."""
    with FakeDaemon() as fake:
        fake.write_endpoint(own_folder(cli.state))
        yield fake
