"""A pytest plugin: gives each test a number while it runs, for `tests/mutants/seen.py`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_FOLDER = Path(os.environ["MUTANTS_FOLDER"])
_STATE = {"number": int(os.environ.get("MUTANTS_BASE", "0")), "failed": False}


def _say(**said: object) -> None:
    with (_FOLDER / "tests").open("a", encoding="utf-8") as file:
        file.write(json.dumps(said) + "\n")


def _now(number: int) -> None:
    with (_FOLDER / "now").open("r+b") as file:
        file.write(number.to_bytes(4, "little"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _STATE["number"] += 1
    _STATE["failed"] = False
    number = _STATE["number"]
    begun = time.monotonic()
    _now(number)
    _say(begun=number, test=item.nodeid, pid=os.getpid())
    yield
    _say(ended=number, test=item.nodeid, seconds=round(time.monotonic() - begun, 3), failed=_STATE["failed"])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _STATE["failed"] = True
