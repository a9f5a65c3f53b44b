"""Runs files of llama.cpp's server tests, directly against llama-server or through a daemon of ours."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from tests.suite.models import write_models
from tests.suite.pictures import PNG
from tests.support.daemon import NO_HUB, ROOT

Mode: TypeAlias = Literal["direct", "through"]
MODES: tuple[Mode, Mode] = ("direct", "through")
_TESTS = "tools/server/tests"
_INI = "[pytest]\nmarkers =\n    slow\n    serial\ntimeout = 300\n"
_PORTS = range(17000, 31000)  # below those that systems give to connections
_OWN = ("SUPERVISOR_", "XDG_", "LLAMA_", "HF_", "PYTEST_")


@dataclass(frozen=True)
class Result:
    """What became of one test in one run.

    Attributes:
        test: its name, without `unit/test_`.
        outcome: `passed`, `failed` or `skipped`.
        failed: the assertions that did not hold, `file:line` each.
        raised: the error that ended it.
        said: the answers that it got, in their order.
        seconds: how long it took.
    """

    test: str
    outcome: str
    failed: frozenset[str]
    raised: str | None
    said: tuple[Any, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether it passed with every assertion."""
        return self.outcome == "passed" and not self.failed


class Suite:
    """The tests of llama.cpp's source, with models made for them.

    source: llama.cpp's folder. engine: the llama-server. scratch: a folder of this object's own.
    """

    def __init__(self, source: Path, engine: Path, scratch: Path) -> None:
        self._source, self._engine, self._scratch = source, engine, scratch
        self._numbers = count()
        self.cache = scratch / "cache"
        self.cache.mkdir()
        write_models(self.cache, source / "models")
        (self.cache / "picture.png").write_bytes(PNG)

    def files(self) -> list[str]:
        """The names of its files: `basic` for `unit/test_basic.py`."""
        return sorted(path.stem.removeprefix("test_") for path in (self._source / _TESTS / "unit").glob("test_*.py"))

    def run(self, mode: Mode, file: str, tests: Sequence[str] = ()) -> dict[str, Result]:
        """Run a file, or some of its tests, and return what became of each."""
        work = self._scratch / f"{next(self._numbers)}"
        home = _unfolded(self._source, work)
        asked = [f"unit/test_{test}" for test in tests] or [f"unit/test_{file}.py"]
        with self._server(mode, work) as server, _free_port() as port:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "pytest", *asked, "-p", "tests.suite.plugin", *_FLAGS],
                cwd=home,
                env=self._environment(server, port, work),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        (work / "output").write_bytes(done.stdout)
        assert done.returncode in {0, 1}, done.stdout.decode(errors="replace")[-4000:]
        found = {result.test: result for result in _results(work / "results")}
        shutil.rmtree(home)
        return found

    def run_all(self, jobs: Sequence[tuple[Mode, str]], at_once: int) -> dict[Mode, dict[str, Result]]:
        """Run files in several ways, some at once."""
        found: dict[Mode, dict[str, Result]] = {mode: {} for mode in MODES}
        with ThreadPoolExecutor(at_once) as pool:
            for (mode, _), results in zip(jobs, pool.map(lambda job: self.run(*job), jobs), strict=True):
                found[mode] |= results
        return found

    def _environment(self, server: Path, port: int, work: Path) -> dict[str, str]:
        return {
            **_kept(),
            "PORT": str(port),
            "LLAMA_SERVER_BIN_PATH": str(server),
            "LLAMA_CACHE": str(self.cache),
            "LLAMA_ARG_THREADS": "1",  # two wait for each other on a busy machine
            "SUITE_SOURCE": str(work),
            "SUITE_RESULT": str(work / "results"),
            "SUITE_PICTURE": str(self.cache / "picture.png"),
        }

    @contextlib.contextmanager
    def _server(self, mode: Mode, work: Path) -> Iterator[Path]:
        """What the tests start as llama-server."""
        if mode == "direct":
            yield self._engine
            return
        (work / "homes").mkdir()
        path = work / "zygote"
        words = [sys.executable, "-P", "-m", "tests.suite.zygote", str(path), str(self._engine), str(work / "homes")]
        with subprocess.Popen(words, env=_kept(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as zygote:
            assert zygote.stdin is not None
            assert zygote.stdout is not None
            try:
                assert zygote.stdout.readline() == b"ready\n"
                launcher = work / "llama-server"
                starts = shlex.join([sys.executable, "-S", "-E", str(ROOT / "tests/suite/launch.py"), str(path)])
                launcher.write_text(f'#!/bin/sh\nexec {starts} "$@"\n')
                launcher.chmod(0o700)
                yield launcher
            finally:
                zygote.stdin.close()


def _kept() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    return {**kept, **NO_HUB, "PYTHONPATH": str(ROOT)}


_FLAGS = ("-m", "not slow", "-c", "suite.ini", "--rootdir", ".", "--assert=plain", "-p", "no:cacheprovider", "-q")


def _unfolded(source: Path, work: Path) -> Path:
    """Copy the tests, and what they need beside them, so that they may write there."""
    home = work / "llama.cpp" / _TESTS
    shutil.copytree(source / _TESTS, home, ignore=shutil.ignore_patterns("__pycache__", "tmp"))
    (home / "tmp").mkdir()
    (home / "suite.ini").write_text(_INI)
    (work / "llama.cpp/models").symlink_to(source / "models")
    pictures = work / "llama.cpp/tools/mtmd"
    pictures.mkdir()
    (pictures / "test-1.jpeg").write_bytes(PNG)
    return home


def _results(path: Path) -> Iterator[Result]:
    for line in path.read_text().splitlines() if path.exists() else ():
        said = json.loads(line)
        yield Result(
            test=said["test"],
            outcome=said["outcome"],
            failed=frozenset(said["failed"]),
            raised=said["raised"],
            said=tuple(said["said"]),
            seconds=said["seconds"],
        )


@contextlib.contextmanager
def _free_port() -> Iterator[int]:
    """A port of this run's own: its number is kept for datagrams meanwhile, so no other run takes it."""
    for port in _PORTS:
        with socket.socket(type=socket.SOCK_DGRAM) as kept, socket.socket() as probe:
            try:
                kept.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            probe.close()
            yield port
            return
    pytest.fail("no port is free")
