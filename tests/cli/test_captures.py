"""`captures`, against a real daemon and engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

HEAD = ["ID", "AGE", "MODEL", "PATH", "KEY", "STATUS", "CODE", "SIZE", "LEFT", "OUT"]


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, scripted_model: ScriptedModel) -> Iterator[RunningDaemon]:
    """A daemon that captures all; three requests have ended."""
    models = {name: {"file": str(scripted_model(f"I am {name}."))} for name in ("one", "two")}
    settings = {"models": models, "capture": {"models": ["*"]}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as running:
        for number in range(3):
            running.chat("one", f"prompt {number}")
        wait_until(lambda: len(running.http.get("/api/v1/captures").json()["captures"]) == 3, "all are captured")
        yield running


@pytest.fixture
def cli(tmp_path: Path, daemon: RunningDaemon) -> Cli:
    return Cli(tmp_path, SUPERVISOR_URL=daemon.url)


def test_the_last_ones_are_a_table(cli: Cli) -> None:
    lines = [line.split() for line in cli("captures", "list", "--model", "one").out.splitlines()]
    assert lines[0] == HEAD
    assert [line[2:6] for line in lines[-3:]] == [["one", "/v1/chat/completions", "-", "200"]] * 3
    assert len(cli("captures", "list", "-n", "1").out.splitlines()) == 2
    assert cli("captures", "list", "--key", "nobody").out == "no request was captured\n"
    assert cli("captures", "list", "--json").json()["on"] is True


def test_one_is_shown_with_its_texts(cli: Cli) -> None:
    shown = cli("captures", "show", "1").out
    assert '"content": "prompt 0"' in shown
    assert "I am one." in shown
    assert cli("captures", "show", "1", "--json").json()["request"]["messages"][0]["content"] == "prompt 0"
    missing = cli("captures", "show", "999")
    assert missing.code != 0
    assert "record_not_found" in missing.err


def test_one_is_sent_again(cli: Cli) -> None:
    assert "I am one." in cli("captures", "replay", "1").out
    found = cli("captures", "replay", "1", "--model", "two", "--json").json()
    assert found["choices"][0]["message"]["content"] == "I am two."


def test_all_are_printed_and_deleted(cli: Cli, daemon: RunningDaemon) -> None:
    count = len(daemon.http.get("/api/v1/captures").json()["captures"])
    lines = cli("captures", "export").out.splitlines()
    assert len(lines) == count
    assert all(json.loads(line)["request"]["messages"] for line in lines)
    assert cli("captures", "forget", str(json.loads(lines[0])["id"])).err == "1 deleted\n"
    assert cli("captures", "forget", "--json").json() == {"deleted": count - 1}
    assert cli("captures", "list").out == "no request was captured\n"


def test_where_nothing_is_captured_it_says_so(tmp_path: Path) -> None:
    with scratch_home() as home, running_daemon(home, Path("/nonexistent")) as running:
        said = Cli(tmp_path, SUPERVISOR_URL=running.url)("captures", "list").out
    assert said == "nothing is captured: `capture` of the configuration names no model and no key\n"
