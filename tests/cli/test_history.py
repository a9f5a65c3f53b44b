"""`history`, against a real daemon: requests without an engine end, too."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until

HEAD = ["AGE", "MODEL", "PATH", "KEY", "STATUS", "CODE", "SECONDS", "QUEUED", "FIRST", "PROMPT", "WRITTEN", "T/S"]
COUNT = 30


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with scratch_home() as home, running_daemon(home, Path("/nonexistent")) as daemon:
        for number in range(COUNT):
            daemon.chat(f"nobody-{number}", "hello")
        daemon.chat("demo", "hello")
        wait_until(
            lambda: len(daemon.http.get("/api/v1/history").json()["requests"]) == COUNT + 1, "all records are there"
        )
        yield daemon


@pytest.fixture
def cli(tmp_path: Path, daemon: RunningDaemon) -> Cli:
    return Cli(tmp_path, SUPERVISOR_URL=daemon.url)


def test_the_last_requests_are_a_table(cli: Cli) -> None:
    lines = [line.split() for line in cli("history").out.splitlines()]
    assert lines[0] == HEAD
    assert len(lines) == 21
    assert lines[1][1:4] == ["demo", "/v1/chat/completions", "-"]
    assert lines[2][1:6] == ["-", "/v1/chat/completions", "-", "404", "model_not_found"]
    assert all(len(line) == len(HEAD) for line in lines)
    assert len(cli("history", "-n", "1000").out.splitlines()) == COUNT + 2


def test_filters_leave_what_they_say(cli: Cli) -> None:
    def models(*filters: str) -> list[str | None]:
        return [one["model"] for one in cli("history", "--json", "-n", "100", *filters).json()["requests"]]

    assert models("--model", "demo") == ["demo"]
    assert models("--code", "model_not_found", "--since", "1h") == [None] * COUNT
    assert models("--since", "99999w") == ["demo", *[None] * COUNT]
    assert models("--key", "nobody") == []
    assert cli("history", "--key", "nobody").out == "no request has ended so\n"


def test_all_that_is_left_is_exported(cli: Cli) -> None:
    every = cli("history", "--json", "-n", "100").json()["requests"]
    rows = list(csv.DictReader(io.StringIO(cli("history", "--export", "csv").out)))
    assert [int(row["id"]) for row in rows] == [one["id"] for one in every]
    lines = cli("history", "--export", "jsonl", "--code", "model_not_found").out.splitlines()
    assert [json.loads(line) for line in lines] == every[1:]


def test_options_that_contradict_each_other_are_refused(cli: Cli) -> None:
    for options in (("--loads", "--export", "csv"), ("--loads", "--code", "x"), ("--since", "yesterday"), ("-n", "0")):
        assert cli("history", *options).code == 2, options


def test_more_than_one_answer_has_is_asked_for_page_by_page(tmp_path: Path) -> None:
    rest = {"at": 1.0, "model": "m", "engine": 1}
    gone = {"event": "engine_gone", "seconds": None, "code": "engine_crashed", "reason": "It crashed."}
    ready = {"event": "engine_ready", "seconds": 2.5, "code": None, "reason": None}
    path = "/api/v1/history/loads"
    with FakeDaemon() as fake:
        fake.answers[path] = {"loads": [{"id": 9, **rest, **gone}, {"id": 8, **rest, **ready}], "next": 8}
        found = Cli(tmp_path, SUPERVISOR_URL=fake.url)("history", "--loads", "-n", "4", "--model", "m")
        asked = [where for _, where, _ in fake.requests if where.startswith(path)]
    rows = [["m", "1", "gone", "-", "engine_crashed", "It", "crashed."], ["m", "1", "ready", "2.500", "-", "-"]]
    assert [line.split()[1:] for line in found.out.splitlines()] == [
        ["MODEL", "ENGINE", "EVENT", "SECONDS", "CODE", "REASON"],
        *(rows * 2),
    ]
    assert asked == [f"{path}?model=m&limit=4", f"{path}?model=m&before=8&limit=2"]


def test_nothing_that_happened_to_an_engine_is_said(cli: Cli) -> None:
    assert cli("history", "--loads", "--model", "nobody").out == "nothing has happened to an engine\n"
