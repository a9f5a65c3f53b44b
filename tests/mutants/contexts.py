"""A pytest plugin that writes down which test runs which line, and how long each takes: `-p tests.mutants.contexts`.

Reads from the environment `MUTANTS_FOLDER`, where it writes, and `MUTANTS_SOURCE`, the program to watch. It writes:

- `now`: the test that runs at the moment, for the processes that it starts; see `tests/mutants/children.py`
- `lines`: coverage's database, in which the context of a line is the test, or "" for one that an import runs
- `tests.json`: {"seconds": {test: seconds}, "failed": [tests]}
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_FOLDER = Path(os.environ["MUTANTS_FOLDER"])
_WATCH = coverage.Coverage(
    data_file=str(_FOLDER / "lines"), branch=False, source=[os.environ["MUTANTS_SOURCE"]], config_file=False
)
_WATCH.start()
_SECONDS: dict[str, float] = {}
_FAILED: set[str] = set()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What runs until the next test is this one's doing."""
    begun = time.monotonic()
    (_FOLDER / "now").write_text(item.nodeid, "utf-8")
    _WATCH.switch_context(item.nodeid)
    yield
    _WATCH.switch_context("")
    _SECONDS[item.nodeid] = round(time.monotonic() - begun, 4)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that fails without any change can judge none."""
    if report.failed:
        _FAILED.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    _WATCH.stop()
    _WATCH.save()
    found = {"seconds": _SECONDS, "failed": sorted(_FAILED)}
    (_FOLDER / "tests.json").write_text(json.dumps(found), "utf-8")
