"""Which test runs which line, and how long each test takes; kept from run to run until sources or tests change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutants.changes import Change


@dataclass
class Map:
    """What the tests run.

    Attributes:
        lines: file → line → the tests that run it; the test "" imports it.
        seconds: test → seconds it took, watched.
    """

    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, found: Mapping[str, Any]) -> None:
        """Add what `contexts` wrote, or what was kept of it; its paths begin at the root of the checkout."""
        for path, lines in found["lines"].items():
            mine = self.lines.setdefault(path, {})
            for line, tests in lines.items():
                mine.setdefault(int(line), set()).update(tests)
        self.seconds.update(found["seconds"])

    def runners(self, change: Change) -> list[str]:
        """The tests that run the change's line; if only its import does, those that run any line of the file, or all.

        Those of the files come first whose tests take the least time together.
        """
        run = self.lines.get(change.path, {})
        tests = run.get(change.line, set()) - {""}
        tests = tests or set().union(*run.values()) - {""} or set(self.seconds)
        total: dict[str, float] = {}
        for test in tests:
            total[file_of(test)] = total.get(file_of(test), 0.0) + self.seconds.get(test, 0.0)
        return sorted(tests, key=lambda test: (total[file_of(test)], file_of(test), self.seconds.get(test, 0.0), test))


def file_of(test: str) -> str:
    """The file of a test's id."""
    return test.partition("::")[0]


def mapped(
    root: Path, memory: Path, package: str, files: Sequence[str], watch: Callable[[Sequence[str]], Mapping[str, Any]]
) -> Map:
    """What the tests of these files run of the package.

    Args:
        root: the checkout, or a copy. memory: the folder of what is known already.
        package: a folder or a module of supervisor/, without its suffix.
        watch: runs the tests of files and returns what `contexts` wrote.
    """
    whole = Map()
    kept = {file: memory / f"{_key(root, package, file)}.json" for file in files}
    missing = [file for file, path in kept.items() if not path.is_file()]
    if missing:
        found = watch(missing)
        for file in missing:
            kept[file].parent.mkdir(exist_ok=True)
            kept[file].write_text(json.dumps(_part(found, file)), "utf-8")
    for path in kept.values():
        whole.add(json.loads(path.read_text("utf-8")))
    return whole


def _part(found: Mapping[str, Any], file: str) -> dict[str, Any]:
    """What one file's tests did."""
    lines: dict[str, dict[str, list[str]]] = {}
    for path, run in found["lines"].items():
        kept = {line: [test for test in tests if file_of(test) in {"", file}] for line, tests in run.items()}
        lines[path] = {line: tests for line, tests in kept.items() if tests}
    seconds = {test: took for test, took in found["seconds"].items() if file_of(test) == file}
    return {"lines": lines, "seconds": seconds}


def _key(root: Path, package: str, file: str) -> str:
    """A hash of the package's sources, the test file, and the modules beside it that are no tests."""
    place = root / "supervisor" / package
    beside = [one for one in (root / file).parent.glob("*.py") if not one.name.startswith("test_")]
    digest = hashlib.sha256(f"{package}\0{file}".encode())
    for path in [*sources(place), root / file, *sorted(beside)]:
        digest.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def sources(place: Path) -> Iterable[Path]:
    """The modules of a package, or the one module of that name."""
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
