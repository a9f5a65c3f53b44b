"""Copies of the checkout in which a change is made and tests are run; the checkout itself is left alone."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tests.mutants.changes import Change

Verdict: TypeAlias = Literal["noticed", "timed out", "survived"]

_PYTEST: Final = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0")
_BROKEN: Final = frozenset({4, 5})  # pytest was called in a wrong way, or found no tests
_MEMORY: Final = 8 << 30
_NICE: Final = 15
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_WATCHING: Final = 7200.0  # seconds; ends what hangs


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

    def watch(self, package: str, files: Sequence[str], select: str) -> Mapping[str, Any]:
        """Which of the files' tests, of those with the markers, runs which line of the package: see `contexts`.

        Raises:
            Broken: a test fails.
        """
        written = self.folder / "mutants-lines.json"
        written.unlink(missing_ok=True)
        place = self.folder / "supervisor" / package
        source = place if place.is_dir() else place.with_suffix(".py")
        wanted = {"MUTANTS_LINES": str(written), "MUTANTS_SOURCE": str(source)}
        status, said = self._run(
            ["-p", "tests.mutants.contexts", "--timeout=900", "-m", select, *files], _WATCHING, wanted
        )
        if status not in {0, 5}:
            raise Broken(f"The tests fail without any change:\n{said}")
        found = json.loads(written.read_text("utf-8"))
        lines = {str(Path(path).relative_to(self.folder)): run for path, run in found["lines"].items()}
        return {"lines": lines, "seconds": found["seconds"]}

    def tried(self, change: Change, tests: Sequence[str], seconds: float) -> tuple[Verdict, str]:
        """Whether one of the tests fails with the change, and which one did.

        Args:
            seconds: of CPU that they may take all together; ten times as many may pass.
        """
        path = self.folder / change.path
        before = path.read_text("utf-8")
        try:
            self._write(path, change.applied(before))
            status, said = self._run(tests, seconds, {})
        except subprocess.TimeoutExpired:
            return "timed out", ""
        finally:
            self._write(path, before)
        if status in _BROKEN:
            raise Broken(f"pytest ended with status {status}:\n{said}")
        if status in {-signal.SIGXCPU, -signal.SIGKILL}:
            return "timed out", ""
        failed = _FAILED.search(said)
        return ("noticed" if status else "survived"), failed[1] if failed else ""

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Write a module, and drop what was compiled of it: its date tells only seconds."""
        path.write_text(text, "utf-8")
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def _run(self, arguments: Sequence[str], seconds: float, more: Mapping[str, str]) -> tuple[int, str]:
        def limit() -> None:
            """A change may make a loop endless: it stays behind others, and within some time and memory."""
            os.nice(_NICE)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))

        done = subprocess.run(
            [sys.executable, *_PYTEST, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds * 10,
            check=False,
            preexec_fn=limit,
        )
        return done.returncode, done.stdout[-4000:]
