"""Copies of the checkout in which a change is made and tests are run; the checkout itself is left alone."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from tests.mutants.changes import Change

Lines: TypeAlias = Mapping[str, Mapping[int, frozenset[str]]]
"""File → line → the tests that run it; the test "" imports it."""

_PYTEST: Final = (
    "-m",
    "pytest",
    "-x",
    "-q",
    "-n",
    "0",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=0",
    "--timeout=60",
)
_FAILED: Final = frozenset({1, 2, 3})  # pytest: a test failed; it was interrupted; it broke
_MEMORY: Final = 8 << 30
_SECONDS: Final = 1200.0


class Broken(Exception):
    """The tests cannot be run, or fail without any change."""


class Sandbox:
    """One copy.

    Args:
        root: the checkout. folder: where the copy is made.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = root / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def lines(self, package: str, tests: Sequence[str], select: str) -> Lines:
        """Which of the tests, of those with the markers, runs which line of the package.

        Raises:
            Broken: a test fails.
        """
        written = self.folder / "mutants-lines.json"
        wanted = {"MUTANTS_LINES": str(written), "MUTANTS_SOURCE": str(self.folder / "supervisor" / package)}
        status, said = self._run(["-p", "tests.mutants.contexts", "--timeout=600", "-m", select, *tests], wanted)
        if status:
            raise Broken(f"The tests fail without any change:\n{said}")
        found = json.loads(written.read_text("utf-8"))
        return {
            str(Path(path).relative_to(self.folder)): {int(line): frozenset(tests) for line, tests in lines.items()}
            for path, lines in found.items()
        }

    def notices(self, change: Change, tests: Sequence[str]) -> bool:
        """Whether one of the tests fails, or does not end, with the change."""
        path = self.folder / change.path
        before = path.read_text("utf-8")
        path.write_text(change.applied(before), "utf-8")
        try:
            status, said = self._run(tests, {})
        except subprocess.TimeoutExpired:
            return True
        finally:
            path.write_text(before, "utf-8")
        if status not in _FAILED | {0}:
            raise Broken(f"pytest ended with status {status}:\n{said}")
        return status != 0

    def _run(self, arguments: Sequence[str], more: Mapping[str, str]) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-B", *_PYTEST, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            preexec_fn=_limit,
        )
        return done.returncode, done.stdout[-4000:]


def _limit() -> None:
    """A change may make a loop endless: it stays behind others, and within some memory."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
