"""How many of N random small changes of the program do its tests notice?

    bin/test --mutants N [--package core/toolcalls] [--seed S] [--jobs J]

Each change is made in a copy of the checkout, on a line that the tests beside its package run, and those of them that
run it are run, quick ones first, up to the first that fails or does not end. If they all pass, so are those beside
whatever imports the package. Tests that measure a cost take no part. Changes in `tests/mutants/known.toml` are without
effect: they are counted, not tried. Which test runs which line is kept in `.mutants/` until the package or the test
changes. The exit status says whether 92 % of those with an effect were noticed.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from tests.mutants.changes import Change, changes_of
from tests.mutants.known import read_known
from tests.mutants.maps import Map, mapped, sources
from tests.mutants.report import Outcome, table
from tests.mutants.sandbox import Broken, Sandbox

_ROOT: Final = Path(__file__).parents[2]
_FEW: Final = 40  # tests that are tried first
_LEAST: Final = 0.92
_NEAR: Final = "not full and not cost"
_WIDE: Final = "not full and not cost and not engine"


def near_and_wide(package: str) -> tuple[list[str], list[str]]:
    """The test files beside the package, and those beside the packages and modules that import it."""
    near = beside(package) or beside(str(Path(package).parent))
    module = ".".join(("supervisor", *Path(package).parts))
    own = set(sources(_ROOT / "supervisor" / package))
    wide: set[str] = set()
    for path in sorted((_ROOT / "supervisor").rglob("*.py")):
        place = path.relative_to(_ROOT / "supervisor").with_suffix("")
        if path not in own and module in path.read_text("utf-8"):
            wide.update(beside(str(place)) or beside(str(place.parent)))
    return near, sorted(wide - set(near))


def beside(package: str) -> list[str]:
    """The test files in the folder, or the one file, that has the package's name; none for the whole program."""
    place = _ROOT / "tests" / package
    one = place.with_name(f"test_{place.name}.py")
    found = [*place.rglob("test_*.py"), *([one] if one.is_file() else [])] if place != _ROOT / "tests" else []
    return sorted(str(path.relative_to(_ROOT)) for path in found)


def candidates(root: Path, package: str, lines: Map) -> list[Change]:
    """The changes on lines that run, of the package as it is in a copy."""
    found: list[Change] = []
    for path in sources(root / "supervisor" / package):
        name = str(path.relative_to(root))
        run = lines.lines.get(name, {})
        found += [one for one in changes_of(name, path.read_text("utf-8")) if one.line in run]
    return found


def drawn(changes: Iterable[Change], seed: int, count: int) -> list[Change]:
    """So many of the changes, by chance: those of a seed stay the same where other code, or a test, comes or goes."""
    seen: set[tuple[str, ...]] = set()
    ranked: list[tuple[bytes, Change]] = []
    for change in changes:
        key: tuple[str, ...] = (str(seed), change.path, change.text, change.old, change.new)
        while key in seen:  # the same once more in this file
            key = (*key, "again")
        seen.add(key)
        ranked.append((hashlib.sha256("\0".join(key).encode()).digest(), change))
    return [change for _, change in sorted(ranked, key=lambda pair: pair[0])[:count]]


class Sampler:
    """Makes the changes, in several copies at a time, and runs the tests."""

    def __init__(self, boxes: Sequence[Sandbox], say: Callable[[str], None], draw: random.Random) -> None:
        self._boxes: SimpleQueue[Sandbox] = SimpleQueue()
        for box in boxes:
            self._boxes.put(box)
        self._jobs = len(boxes)
        self._say = say
        self._draw = draw
        self._done = 0

    def outcomes(self, changes: Sequence[Change], lines: Map) -> list[Outcome]:
        """What the tests say of each."""
        self._done = 0
        chosen = [(change, self._batches(lines.runners(change))) for change in changes]
        with ThreadPoolExecutor(self._jobs) as pool:
            futures = [pool.submit(self._outcome, change, tests, len(changes), lines) for change, tests in chosen]
            return [one.result() for one in futures]

    def _batches(self, tests: list[str]) -> list[list[str]]:
        """A few of the quicker tests, which mostly suffice; then the others."""
        few = set(self._draw.sample(tests[: len(tests) // 2 + 1], min(_FEW, len(tests) // 2 + 1))) if tests else set()
        return [[one for one in tests if one in few], [one for one in tests if one not in few]]

    def _outcome(self, change: Change, batches: list[list[str]], count: int, lines: Map) -> Outcome:
        box = self._boxes.get()
        try:
            outcome = Outcome(change, "survived", "")
            for tests in filter(None, batches):
                took = [lines.seconds.get(test, 0.0) for test in tests]
                limits = [f"--timeout={max(60, int(20 * max(took)))}"]
                outcome = Outcome(change, *box.tried(change, [*limits, *tests], 60 + 3 * sum(took)))
                if outcome.verdict != "survived":
                    break
        finally:
            self._boxes.put(box)
        self._done += 1
        self._say(f"{self._done:3}/{count} {outcome}")
        return outcome


def run(count: int, package: str, seed: int, jobs: int, folder: Path) -> int:
    """Sample, try, report."""

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    boxes = [Sandbox(_ROOT, folder / str(number)) for number in range(jobs)]
    near, wide = near_and_wide(package)
    lines = _mapped(boxes[0], package, near, _NEAR, say)
    everything = candidates(boxes[0].folder, package, lines)
    chosen = drawn(everything, seed, count)
    say(f"{len(chosen)} of {len(everything)} changes of supervisor/{package}, seed {seed}; {len(near)} test files")
    known = read_known()
    apart = [one for one in chosen if any(entry.is_like(one) for entry in known)]
    sampler = Sampler(boxes, say, random.Random(seed))
    found = sampler.outcomes([one for one in chosen if one not in apart], lines)
    left = [one.change for one in found if one.verdict == "survived"]
    if left and wide:
        say(f"{len(left)} go on to {len(wide)} test files of what imports the package")
        again = sampler.outcomes(left, _mapped(boxes[0], package, wide, _WIDE, say))
        found = [one for one in found if one.verdict != "survived"] + again
    found += [Outcome(one, "without effect", "") for one in apart]
    missed = [one for one in found if one.verdict == "survived"]
    for line in ["", *map(str, missed), "", *table(found)]:
        say(line)
    return 0 if len(missed) <= (1 - _LEAST) * (len(found) - len(apart)) else 1


def _mapped(box: Sandbox, package: str, files: Sequence[str], select: str, say: Callable[[str], None]) -> Map:
    def watch(missing: Sequence[str]) -> Mapping[str, Any]:
        say(f"which lines of supervisor/{package} do the tests of {len(missing)} files run? …")
        return box.watch(package, missing, select)

    return mapped(box.folder, _ROOT / ".mutants", package, files, watch)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/test --mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int, help="how many changes")
    parser.add_argument(
        "--package", required=True, metavar="P", help="a folder or module of supervisor/: core/toolcalls"
    )
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the checkout at work (default: %(default)s)")
    args = parser.parse_args()
    package = args.package.strip("/").removesuffix(".py")
    if not all(path.is_file() for path in sources(_ROOT / "supervisor" / package)):
        parser.error(f"there is no supervisor/{package}")
    with tempfile.TemporaryDirectory(prefix="supervisor-mutants-") as folder:
        try:
            return run(args.count, package, args.seed, args.jobs, Path(folder).resolve())
        except Broken as broken:
            sys.stderr.write(f"bin/test --mutants: {broken}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main())
