"""Which test runs which line, and how long each test takes; kept from run to run until sources or the test change."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from tests.mutants.changes import Change

Runs: TypeAlias = dict[str, dict[str, int]]
"""File of the program → test → its lines, as bits: line n is bit n. The test "" stands for an import."""


@dataclass
class Map:
    """What the tests run.

    Attributes:
        runs: which lines. The files' paths begin at the root of the checkout.
        seconds: test → seconds it took, watched.
    """

    runs: Runs = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, runs: Runs, seconds: Mapping[str, float]) -> None:
        """Add what is known of more tests."""
        for path, tests in runs.items():
            mine = self.runs.setdefault(path, {})
            for test, bits in tests.items():
                mine[test] = mine.get(test, 0) | bits
        self.seconds.update(seconds)

    def is_run(self, change: Change) -> bool:
        """Whether a test, or an import, runs the change's statement."""
        return any(bits & change.lines for bits in self.runs.get(change.path, {}).values())

    def runners(self, change: Change) -> list[str]:
        """The tests that run the change's line, or else its statement.

        Where only an import does: those that run the file, and the module's own, which may look at its tables; or all.
        """
        run = self.runs.get(change.path, {})
        tests = {test for test, bits in run.items() if bits >> change.line & 1} - {""}
        tests = tests or {test for test, bits in run.items() if bits & change.lines} - {""}
        own = {test for test in self.seconds if is_own(change.path, file_of(test))}
        return sorted(tests or (set(run) | own) - {""} or self.seconds)


def file_of(test: str) -> str:
    """The file of a test's id."""
    return test.partition("::")[0]


def is_own(path: str, file: str) -> bool:
    """Whether a test file is a module's own: it has its name and lies where the module does, or further up.

    Further up than all is the folder `shell`.
    """
    module, test = PurePosixPath(path).relative_to("supervisor"), PurePosixPath(file).relative_to("tests")
    place = test.parent if test.parts[0] != "shell" else PurePosixPath()
    return module.is_relative_to(place) and test.stem.startswith(f"test_{module.stem}")


def read_runs(folder: Path, root: Path, tests: Iterable[str]) -> Runs:
    """What `contexts` and `children` wrote into a folder, of a checkout's files and these tests.

    What a process did that lived on when its test had ended counts for every test of that test's file.
    """
    of_file: dict[str, list[str]] = {}
    for test in tests:
        of_file.setdefault(file_of(test), []).append(test)
    found: Runs = {}
    for path in [folder / "lines", *folder.glob("*.one"), *folder.glob("*.many")]:
        for name, test, bits in _rows(path):
            source = str(Path(name).relative_to(root))
            who = of_file.get(file_of(test), []) if path.suffix == ".many" else [test]
            for one in who:
                mine = found.setdefault(source, {})
                mine[one] = mine.get(one, 0) | bits
    return found


def _rows(database: Path) -> Iterable[tuple[str, str, int]]:
    """File, context and lines, by the scheme that coverage documents: bit n%8 of byte n//8 is line n."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute(
            "select file.path, context.context, line_bits.numbits from line_bits"
            " join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
        ).fetchall()
    connection.close()
    return [(name, test, int.from_bytes(bits, "little")) for name, test, bits in rows]


class Memory:
    """What tests were seen to run: it holds until one of them, or a module of the program that they run, changes.

    Args:
        root: the checkout. folder: where it is kept.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._digests: dict[str, str] = {}

    def mapped(self, files: Sequence[str], watch: Callable[[Sequence[str]], tuple[Runs, Mapping[str, float]]]) -> Map:
        """What the tests of these files run.

        Args:
            watch: runs the tests of files and says which lines they ran, and how long each took.
        """
        found = {file: self._kept(file) for file in files}
        missing = [file for file, kept in found.items() if kept is None]
        if missing:
            self._keep(missing, *watch(missing))
        whole = Map()
        for kept in filter(None, map(self._kept, files)):
            whole.add(_numbers(kept["runs"]), kept["seconds"])
        return whole

    def _keep(self, files: Iterable[str], runs: Runs, seconds: Mapping[str, float]) -> None:
        self._folder.mkdir(exist_ok=True)
        for file in files:
            mine: dict[str, dict[str, str]] = {}
            for path, tests in runs.items():
                bits = {test: f"{lines:x}" for test, lines in tests.items() if file_of(test) in {"", file}}
                if bits:
                    mine[path] = bits
            run = [path for path, tests in mine.items() if tests.keys() - {""}]
            took = {test: one for test, one in seconds.items() if file_of(test) == file}
            kept = {"sources": {path: self._digest(path) for path in run}, "runs": mine, "seconds": took}
            self._place(file).write_text(json.dumps(kept), "utf-8")

    def _kept(self, file: str) -> dict[str, Any] | None:
        """What is known of a file's tests, if it still holds."""
        path = self._place(file)
        if not path.is_file():
            return None
        kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return kept if all(self._digest(one) == digest for one, digest in kept["sources"].items()) else None

    def _place(self, file: str) -> Path:
        """A name made of a hash of the test file and the modules beside it that are no tests."""
        beside = [one for one in (self._root / file).parent.glob("*.py") if not one.name.startswith("test_")]
        digest = hashlib.sha256(file.encode())
        for path in [self._root / file, *sorted(beside)]:
            digest.update(f"\0{path.relative_to(self._root)}\0".encode() + path.read_bytes())
        return self._folder / f"{digest.hexdigest()[:32]}.json"

    def _digest(self, name: str) -> str:
        path = self._root / name
        if name not in self._digests:
            self._digests[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        return self._digests[name]


def _numbers(runs: Mapping[str, Mapping[str, str]]) -> Runs:
    return {path: {test: int(bits, 16) for test, bits in tests.items()} for path, tests in runs.items()}


def sources(place: Path) -> list[Path]:
    """The modules of a package, or the one module of that name."""
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
