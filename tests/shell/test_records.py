"""What the next daemon does about the children of a killed one, with real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from supervisor.system import processes
from supervisor.system.owned import MARKER, inner_folder, own_folder
from supervisor.system.records import Ended, Record, end_leftovers, write_record

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sessions are POSIX")


class Stranger:
    """A process that leads its own session, as our children do."""

    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline().decode().strip()
        started = processes.create_time(self.process.pid)
        assert started is not None
        self.record = Record(self.process.pid, started, "/bin/llama-server", "")

    def close(self) -> None:
        for pid in processes.session_members(self.process.pid):
            os.kill(pid, 9)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def leftover() -> Iterator[Stranger]:
    stranger = Stranger("echo up; exec sleep 600")
    yield stranger
    stranger.close()


def test_a_leftover_is_ended_and_its_traces_removed(tmp_path: Path, leftover: Stranger) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    write_record(tmp_path / "children", replace(leftover.record, socket=str(path)))
    assert end_leftovers(tmp_path / "children") == [Ended(leftover.record.pid, "/bin/llama-server", "killed")]
    assert leftover.process.wait() == -15
    assert os.listdir(tmp_path / "children") == []
    assert not path.exists()


def test_sigkill_and_the_whole_session_where_sigterm_is_ignored(tmp_path: Path) -> None:
    stranger = Stranger("trap '' TERM; sleep 600 & echo $!; wait; sleep 600")
    write_record(tmp_path, stranger.record)
    try:
        [ended] = end_leftovers(tmp_path, term_s=0.2)
        assert ended.outcome == "killed"
        assert stranger.process.wait() == -9
        assert not processes.is_running(int(stranger.first_line))
    finally:
        stranger.close()


@pytest.mark.parametrize("shift", [-3600.0, -1.0, 1.0])
def test_a_recycled_pid_is_left_alone(tmp_path: Path, leftover: Stranger, shift: float) -> None:
    path = tmp_path / "somebody.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    other = replace(leftover.record, create_time=leftover.record.create_time + shift, socket=str(path))
    write_record(tmp_path / "children", other)
    assert end_leftovers(tmp_path / "children") == [Ended(other.pid, other.program, "not ours")]
    assert leftover.process.poll() is None
    assert os.listdir(tmp_path / "children") == []


def test_a_process_that_leads_no_session_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        started = processes.create_time(process.pid)
        assert started is not None
        write_record(tmp_path, Record(process.pid, started, "sleep", ""))
        assert end_leftovers(tmp_path) == [Ended(process.pid, "sleep", "not ours")]
        assert process.poll() is None
        process.kill()


def test_the_record_of_a_process_that_is_gone_goes_with_its_socket(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    write_record(tmp_path / "children", Record(process.pid, 1.0, "llama-server", str(path)))
    assert end_leftovers(tmp_path / "children") == [Ended(process.pid, "llama-server", "gone")]
    assert not path.exists()


def test_only_sockets_are_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("keep me")
    with subprocess.Popen(["true"]) as process:
        pass
    write_record(tmp_path / "children", Record(process.pid, 1.0, "llama-server", str(precious)))
    end_leftovers(tmp_path / "children")
    assert precious.read_text() == "keep me"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"pid": 1}',
        json.dumps(asdict(Record(1, 1.0, "init", ""))),
        json.dumps(asdict(Record(0, 1.0, "us all", ""))),
        json.dumps(asdict(Record(-1, 1.0, "everybody", ""))),
        json.dumps(asdict(Record(1 << 31, 1.0, "more than a system has", ""))),
        json.dumps({"pid": "7", "create_time": 1.0, "program": "", "socket": ""}),
        json.dumps({"pid": True, "create_time": 1.0, "program": "", "socket": ""}),
        "\udcff",
    ],
)
def test_a_damaged_record_costs_only_itself(tmp_path: Path, text: str) -> None:
    (tmp_path / "4711.json").write_bytes(text.encode(errors="surrogateescape"))
    assert end_leftovers(tmp_path) == [Ended(None, "4711.json", "unreadable")]
    assert os.listdir(tmp_path) == []


def test_a_half_written_record_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".4711.json.0a1b2c3d").write_text('{"pid": 47')
    assert end_leftovers(tmp_path) == []
    assert os.listdir(tmp_path) == []


def test_no_folder_means_no_leftovers(tmp_path: Path) -> None:
    assert end_leftovers(tmp_path / "none") == []


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"pid": 99999999999999999999, "create_time": 1.0, "program": "x", "socket": ""}',
        '{"pid": 1e999, "create_time": 1.0, "program": "x", "socket": ""}',
    ],
)
def test_a_record_that_makes_no_sense_stops_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.json").write_text(text)
    assert [ended.outcome for ended in end_leftovers(tmp_path)] == ["unreadable"]
    assert os.listdir(tmp_path) == []


def test_a_start_that_is_no_number_is_nobodys(tmp_path: Path, leftover: Stranger) -> None:
    write_record(tmp_path, replace(leftover.record, create_time=float("nan")))
    assert [ended.outcome for ended in end_leftovers(tmp_path)] == ["not ours"]
    assert processes.is_running(leftover.process.pid)


def test_files_that_lay_there_before_the_program_are_no_records(tmp_path: Path) -> None:
    """Somebody may name a folder for the program in which there is a folder `children`."""
    children = tmp_path / "children"
    children.mkdir()
    others = [children / "anna.json", children / ".ben.json.0123abcd", children / "5.json"]
    for path in others:
        path.write_text("{}")
    own_folder(tmp_path)
    assert end_leftovers(children) == []
    inner_folder(children)
    (children / "6.json").write_text("{}")
    assert [one.outcome for one in end_leftovers(children)] == ["unreadable"]
    assert sorted(path for path in children.iterdir() if path.name != MARKER) == sorted(others)
