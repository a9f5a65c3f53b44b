"""Copies of the checkout in which a change is made and tests are run; the checkout itself is left alone."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tests.mutants.changes import Change
from tests.mutants.maps import Runs, file_of, read_runs
from tests.mutants.running import Runner

Verdict: TypeAlias = Literal["noticed", "timed out", "survived"]

_PYTEST: Final = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0")
_WRONG: Final = 4  # pytest was called in a wrong way: there is no such test, or what tests share cannot be imported
_UNIMPORTABLE: Final = ("conftest", "found no collectors for")  # what it says then where an import failed
_NONE: Final = 5  # it found no tests
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_WATCHING: Final = 7200  # seconds; ends what hangs
_CHILD: Final = """
import runpy as _runpy
_runpy.run_path({script!r}, {{"FOLDER": {folder!r}, "SOURCE": {source!r}}}, "mutants-child")
"""


class Broken(Exception):
    """The tests cannot be run."""


class Sandbox:
    """One copy.

    Args:
        root: the checkout. folder: where the copy is made.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        self._runner = Runner()
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

    def watch(self, files: Sequence[str], select: str) -> tuple[Runs, dict[str, float], list[str]]:
        """Which of the files' tests, of those with the markers, runs which line of the program: see `contexts`.

        Returns: the lines, the seconds of each test, and the tests that fail without any change, which have neither.

        Raises:
            Broken: the tests cannot be run.
        """
        written = self.folder / "mutants-seen"
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir()
        (written / "now").write_text("", "utf-8")
        source = str(self.folder / "supervisor")
        first = self.folder / "supervisor" / "__init__.py"
        before = first.read_text("utf-8")
        script = str(self.folder / "tests" / "mutants" / "children.py")
        try:
            self._write(first, before + _CHILD.format(script=script, folder=str(written), source=source))
            status, said = self._run(
                ["-p", "tests.mutants.contexts", "--timeout=900", "-m", select],
                files,
                _WATCHING,
                {"MUTANTS_FOLDER": str(written), "MUTANTS_SOURCE": source},
            )
        finally:
            self._write(first, before)
        if status not in {0, 1, _NONE}:
            raise Broken(f"pytest ended with status {status}:\n{said}")
        found = json.loads((written / "tests.json").read_text("utf-8"))
        seconds = {test: took for test, took in found["seconds"].items() if test not in found["failed"]}
        runs = read_runs(written, self.folder, found["seconds"])
        good = {
            path: {test: bits for test, bits in tests.items() if test in {"", *seconds}} for path, tests in runs.items()
        }
        return good, seconds, found["failed"]

    def tried(self, change: Change, tests: Sequence[str], seconds: float, *options: str) -> tuple[Verdict, str]:
        """Whether one of the tests fails with the change, and which one did.

        Where a change makes or removes tests, as of a table's rows, those of the same files are asked.

        Args:
            seconds: of CPU that they may take all together; ten times as many may pass.
            options: for pytest.
        """
        path = self.folder / change.path
        before = path.read_text("utf-8")
        try:
            self._write(path, change.applied(before))
            status, said = self._run(["-x", *options], tests, seconds, {})
            if status == _WRONG and "not found: " in said:
                files = sorted(set(map(file_of, tests)))
                status, said = self._run(["-x", "-m", "not full and not cost", *options], files, seconds, {})
        except subprocess.TimeoutExpired:
            return "timed out", ""
        finally:
            self._write(path, before)
        if status == _NONE or (status == _WRONG and not any(word in said for word in _UNIMPORTABLE)):
            raise Broken(f"pytest ended with status {status}:\n{said}")
        if status in {-signal.SIGXCPU, -signal.SIGKILL}:
            return "timed out", ""
        failed = _FAILED.search(said)
        return ("noticed" if status else "survived"), failed[1] if failed else ""

    def stop(self) -> None:
        """End what runs in it; nothing can be run any more."""
        self._runner.stop()

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Write a module, and drop what was compiled of it: its date tells only seconds."""
        path.write_text(text, "utf-8")
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    def _run(
        self, options: Sequence[str], tests: Sequence[str], seconds: float, more: Mapping[str, str]
    ) -> tuple[int, str]:
        """Run pytest; its exit status and the end of what it said."""
        listed = self.folder / "mutants-tests"  # more than a command line may hold
        listed.write_text("\n".join(tests), "utf-8")
        return self._runner.run(
            [sys.executable, *_PYTEST, *options, f"@{listed}"],
            self.folder,
            {**os.environ, "PYTHONPATH": str(self.folder), **more},
            seconds,
            self.folder / "mutants-said",
        )
