"""A pytest plugin that writes down which test runs which line: `pytest -p tests.mutants.contexts`.

Reads from the environment `MUTANTS_LINES`, the file to write, and `MUTANTS_SOURCE`, the package to watch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_WATCH = coverage.Coverage(data_file=None, source=[os.environ["MUTANTS_SOURCE"]], branch=False)
_WATCH.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What runs until the next test is this one's doing."""
    _WATCH.switch_context(item.nodeid)
    yield
    _WATCH.switch_context("")


def pytest_sessionfinish() -> None:
    """Write {file: {line: [tests]}}; a line that runs when its module is imported has the test ""."""
    _WATCH.stop()
    data = _WATCH.get_data()
    lines = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
    Path(os.environ["MUTANTS_LINES"]).write_text(json.dumps(lines), "utf-8")
