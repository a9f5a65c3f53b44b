"""How many of N random small changes of the program do its tests notice?

    bin/test --mutants N [--package core/toolcalls] [--seed S] [--jobs J]

Each change is made in a copy of the checkout, on a line that a test runs, in its own process or in one that it starts,
and the tests that run it are run, up to the first that fails or does not end: first a few cases of those beside the
changed module, then all, as far as a minute reaches. A change that the others might have noticed is `cut off`, and
counts as one that no test notices. Tests that measure a cost, and long ones, take no part.

Changes in `tests/mutants/known.toml` are without effect: they are counted, not tried. Which test runs which line is
kept in `.mutants/` until the test or a module that it runs changes. The exit status says whether 92 % of those with an
effect were noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Final, NoReturn

from tests.mutants.changes import Change, changes_of
from tests.mutants.known import read_known
from tests.mutants.maps import Map, Memory, Runs, is_own, sources
from tests.mutants.order import Rounds, rounds
from tests.mutants.report import Outcome, table
from tests.mutants.sandbox import Broken, Sandbox

_ROOT: Final = Path(__file__).parents[2]
_LEAST: Final = 0.92
_SELECT: Final = "not full and not cost"


def files_of(package: str) -> list[str]:
    """The test files beside the package and beside what imports it; for the whole program all but the sampler's own."""
    every = sorted(str(path.relative_to(_ROOT)) for path in (_ROOT / "tests").rglob("test_*.py"))
    found = set(every) if package == "." else {*beside(package), *_of_importers(package)}
    return [one for one in every if one in found and not one.startswith("tests/mutants/")]


def _of_importers(package: str) -> Iterable[str]:
    module = ".".join(("supervisor", *Path(package).parts))
    own = set(sources(_ROOT / "supervisor" / package))
    for path in (_ROOT / "supervisor").rglob("*.py"):
        if path not in own and module in path.read_text("utf-8"):
            yield from beside(str(path.relative_to(_ROOT / "supervisor").with_suffix("")))


def beside(package: str) -> list[str]:
    """The test files in the folder of the package's name, and its modules' own; else those of the package around it."""
    place = Path(package)
    if place == Path():
        return []
    modules = [str(path.relative_to(_ROOT)) for path in sources(_ROOT / "supervisor" / place)]
    there = (str(path.relative_to(_ROOT)) for path in (_ROOT / "tests").rglob("test_*.py"))
    near = f"tests/{place}/"
    found = [one for one in there if one.startswith(near) or any(is_own(module, one) for module in modules)]
    return sorted(found) or beside(str(place.parent))


def candidates(root: Path, package: str) -> list[Change]:
    """Every change of the package."""
    paths = sources(root / "supervisor" / package)
    return [one for path in paths for one in changes_of(str(path.relative_to(root)), path.read_text("utf-8"))]


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
        self._all = list(boxes)
        self._jobs = len(boxes)
        self._say = say
        self._draw = draw
        self._done = 0

    @contextlib.contextmanager
    def _threads(self) -> Iterator[ThreadPoolExecutor]:
        """One for each copy. Whatever ends the block early ends what they run."""
        pool = ThreadPoolExecutor(self._jobs)
        try:
            yield pool
        except BaseException:
            for box in self._all:
                box.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def watched(self, files: Sequence[str]) -> tuple[Runs, Mapping[str, float]]:
        """Which lines the tests of files run, and how long each takes."""
        self._say(f"which lines do the tests of {len(files)} files run? …")
        runs: Runs = {}
        seconds: dict[str, float] = {}
        with self._threads() as pool:
            parts = [files[number :: self._jobs] for number in range(self._jobs)]
            for seen, took, failed in pool.map(self._watched, filter(None, parts)):
                for path, tests in seen.items():
                    runs.setdefault(path, {}).update(tests)
                seconds.update(took)
                for test in failed:
                    self._say(f"fails without any change, and is not asked: {test}")
        return runs, seconds

    def _watched(self, files: Sequence[str]) -> tuple[Runs, Mapping[str, float], Sequence[str]]:
        box = self._boxes.get()
        try:
            return box.watch(files, _SELECT)
        finally:
            self._boxes.put(box)

    def outcomes(self, changes: Sequence[Change], lines: Map) -> list[Outcome]:
        """What the tests say of each."""
        self._done = 0
        with self._threads() as pool:
            plans = [rounds(one, lines.runners(one), lines.seconds, self._draw) for one in changes]
            futures = [
                pool.submit(self._outcome, *pair, len(changes), lines) for pair in zip(changes, plans, strict=True)
            ]
            return [one.result() for one in futures]

    def _outcome(self, change: Change, plan: Rounds, count: int, lines: Map) -> Outcome:
        box = self._boxes.get()
        try:
            outcome = Outcome(change, "survived", "")
            for tests in plan.tests:
                took = [lines.seconds.get(test, 0.0) for test in tests]
                limit = f"--timeout={max(60, int(20 * max(took)))}"
                outcome = Outcome(change, *box.tried(change, tests, 30 + 3 * sum(took), limit))
                if outcome.verdict != "survived":
                    break
        finally:
            self._boxes.put(box)
        if outcome.verdict == "survived" and plan.left:
            outcome = Outcome(change, "cut off", f"{plan.left} tests were not tried")
        self._done += 1
        self._say(f"{self._done:3}/{count} {outcome}")
        return outcome


def run(count: int, package: str, seed: int, boxes: Sequence[Sandbox]) -> int:
    """Sample, try, report."""

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    sampler = Sampler(boxes, say, random.Random(seed))
    files = files_of(package)
    lines = Memory(_ROOT, _ROOT / ".mutants").mapped(files, sampler.watched)
    everything = candidates(_ROOT, package)
    tried = [one for one in everything if lines.is_run(one)]
    chosen = drawn(tried, seed, count)
    say(
        f"{len(chosen)} of {len(tried)} changes of supervisor/{package}, seed {seed}; {len(files)} test files;"
        f" {len(everything) - len(tried)} more are on lines that no test is seen to run"
    )
    known = read_known()
    apart = [one for one in chosen if any(entry.is_like(one) for entry in known)]
    found = sampler.outcomes([one for one in chosen if one not in apart], lines)
    missed = [one for one in found if one.verdict in {"survived", "cut off"}]
    found += [Outcome(one, "without effect", "") for one in apart]
    for line in ["", *map(str, missed), "", *table(found)]:
        say(line)
    return 0 if len(missed) <= (1 - _LEAST) * (len(found) - len(apart)) else 1


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """A signal ends the sampler with what it has started."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/test --mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int, help="how many changes")
    parser.add_argument(
        "--package", default=".", metavar="P", help="a folder or module of supervisor/: core/toolcalls (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="copies of the checkout at work (default: %(default)s)")
    args = parser.parse_args()
    package = args.package.strip("/").removesuffix(".py")
    if not all(path.is_file() for path in sources(_ROOT / "supervisor" / package)):
        parser.error(f"there is no supervisor/{package}")
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, _stop)
    with tempfile.TemporaryDirectory(prefix="supervisor-mutants-", ignore_cleanup_errors=True) as folder:
        boxes = [Sandbox(_ROOT, Path(folder).resolve() / str(number)) for number in range(args.jobs)]
        try:
            return run(args.count, package, args.seed, boxes)
        except Broken as broken:
            sys.stderr.write(f"bin/test --mutants: {broken}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main())
