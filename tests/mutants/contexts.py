"""A pytest plugin that writes down which test runs which line, and how long each takes: `-p tests.mutants.contexts`.

Reads from the environment `MUTANTS_LINES`, the file to write, and `MUTANTS_SOURCE`, the package to watch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_SOURCE = os.environ["MUTANTS_SOURCE"]
_WATCH = (
    coverage.Coverage(data_file=None, branch=False, include=[_SOURCE])
    if _SOURCE.endswith(".py")
    else coverage.Coverage(data_file=None, branch=False, source=[_SOURCE])
)
_WATCH.start()
_SECONDS: dict[str, float] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What runs until the next test is this one's doing."""
    begun = time.monotonic()
    _WATCH.switch_context(item.nodeid)
    yield
    _WATCH.switch_context("")
    _SECONDS[item.nodeid] = round(time.monotonic() - begun, 4)


def pytest_sessionfinish() -> None:
    """Write {"lines": {file: {line: [tests]}}, "seconds": {test: seconds}}.

    A line that runs when its module is imported has the test "".
    """
    _WATCH.stop()
    data = _WATCH.get_data()
    lines = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
    Path(os.environ["MUTANTS_LINES"]).write_text(json.dumps({"lines": lines, "seconds": _SECONDS}), "utf-8")
