"""How many of N random small changes of the program do its tests notice?

    bin/test --mutants N [--package core/toolcalls] [--seed S] [--jobs J]

Each change is made in a copy of the checkout, on a line that the tests beside its package run, and those of them that
run it are run. If they all pass, so are those beside whatever imports the package. Tests that measure a cost take no
part. Changes in `tests/mutants/known.toml` are without effect and left out. The exit status says whether 92 % were
noticed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants.changes import Change, changes_of
from tests.mutants.known import read_known, without_known
from tests.mutants.sandbox import Broken, Lines, Sandbox

_ROOT: Final = Path(__file__).parents[2]
_FEW: Final = 40  # tests that are tried first
_LEAST: Final = 0.92


def near_and_wide(package: str) -> tuple[list[str], list[str]]:
    """The tests beside the package, and those beside the packages and modules that import it."""
    near = beside(package)
    module = ".".join(("supervisor", *Path(package).parts))
    wide: set[str] = set()
    for path in sorted((_ROOT / "supervisor").rglob("*.py")):
        place = path.relative_to(_ROOT / "supervisor").with_suffix("")
        if not str(place).startswith(package) and module in path.read_text("utf-8"):
            wide.update(beside(str(place)) or beside(str(place.parent)))
    inside = {one for one in wide if any(Path(other) in Path(one).parents for other in wide)}
    return near, sorted(wide - inside - {*near, "tests"})


def beside(package: str) -> list[str]:
    """The folder of tests, or the file, that has the package's name."""
    place = Path("tests", package)
    found = [place, place.with_name(f"test_{place.name}.py")]
    return [str(one) for one in found if (_ROOT / one).exists()]


def candidates(package: str, lines: Lines) -> list[Change]:
    """The changes on lines that run."""
    found: list[Change] = []
    for path, run in sorted(lines.items()):
        if not path.startswith(f"supervisor/{package}"):
            continue
        found += [one for one in changes_of(path, (_ROOT / path).read_text("utf-8")) if one.line in run]
    return without_known(found, read_known())


def runners(change: Change, lines: Lines) -> list[str]:
    """The tests that run the change's line; if only its import does, those that run any line of the file."""
    run = lines.get(change.path, {})
    tests = run.get(change.line, frozenset()) - {""}
    return sorted(tests or frozenset().union(*run.values()) - {""})


class Sampler:
    """Makes the changes, in several copies at a time, and runs the tests."""

    def __init__(self, boxes: Sequence[Sandbox], say: Callable[[str], None], draw: random.Random) -> None:
        self._boxes: SimpleQueue[Sandbox] = SimpleQueue()
        for box in boxes:
            self._boxes.put(box)
        self._jobs = len(boxes)
        self._say = say
        self._draw = draw

    def survivors(self, changes: Sequence[Change], lines: Lines, *, few: bool) -> list[Change]:
        """Those that no test notices.

        Args:
            few: a handful of the tests come first, since they mostly suffice.
        """
        chosen = [(change, runners(change, lines)) for change in changes]
        firsts = [self._draw.sample(tests, min(_FEW, len(tests))) if few else [] for _, tests in chosen]
        with ThreadPoolExecutor(self._jobs) as pool:
            noticed = list(pool.map(self._notices, [one for one, _ in chosen], [tests for _, tests in chosen], firsts))
        return [change for change, seen in zip(changes, noticed, strict=True) if not seen]

    def _notices(self, change: Change, tests: list[str], first: list[str]) -> bool:
        box = self._boxes.get()
        try:
            seen = bool(first) and box.notices(change, first)
            seen = seen or (len(tests) > len(first) and box.notices(change, tests))
        finally:
            self._boxes.put(box)
        self._say(f"{'noticed ' if seen else 'SURVIVED'} {change}")
        return seen


def report(changes: Sequence[Change], survivors: Sequence[Change]) -> list[str]:
    """A line for each package, and one for all."""
    made = Counter(str(Path(change.path).parent.relative_to("supervisor")) for change in changes)
    left = Counter(str(Path(change.path).parent.relative_to("supervisor")) for change in survivors)
    rows = [(name, count, count - left[name]) for name, count in sorted(made.items())]
    rows.append(("all", len(changes), len(changes) - len(survivors)))
    return [f"{name:<32} {seen:4} of {count:4} noticed ({seen / max(count, 1):.0%})" for name, count, seen in rows]


def run(count: int, package: str, seed: int, jobs: int, folder: Path) -> int:
    """Sample, try, report."""

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    boxes = [Sandbox(_ROOT, folder / str(number)) for number in range(jobs)]
    near, wide = near_and_wide(package)
    lines = boxes[0].lines(package, near, "not full and not cost")
    everything = candidates(package, lines)
    draw = random.Random(seed)
    chosen = draw.sample(everything, min(count, len(everything)))
    say(f"{len(chosen)} of {len(everything)} changes of supervisor/{package}, seed {seed}; tests: {' '.join(near)}")
    sampler = Sampler(boxes, say, draw)
    left = sampler.survivors(chosen, lines, few=True)
    if left and wide:
        say(f"{len(left)} go on to {' '.join(wide)}")
        left = sampler.survivors(left, boxes[0].lines(package, wide, "not full and not cost and not engine"), few=False)
    for line in ["", *(f"SURVIVED {change}" for change in left), "", *report(chosen, left)]:
        say(line)
    return 0 if len(left) <= (1 - _LEAST) * len(chosen) else 1


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bin/test --mutants", description=__doc__)
    parser.add_argument("count", type=int, help="how many changes")
    parser.add_argument("--package", default="", metavar="P", help="only this part of supervisor/ (core/toolcalls)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the checkout at work (default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="supervisor-mutants-") as folder:
        try:
            return run(args.count, args.package.strip("/"), args.seed, args.jobs, Path(folder).resolve())
        except Broken as broken:
            sys.stderr.write(f"bin/test --mutants: {broken}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main())
