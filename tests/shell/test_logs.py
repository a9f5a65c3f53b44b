"""The daemon's own log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import structlog

from supervisor.core.text.flood import Flood
from supervisor.core.text.loglevel import LogFormat
from supervisor.system import logs, requestid


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Leave both libraries as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def answers_one() -> Iterator[None]:
    """A request with the id `one` is being answered."""
    request = requestid.answering("one")
    yield
    request.over()


def test_a_reader_that_is_gone_does_not_fail_who_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    reader, writer = os.pipe()
    os.close(reader)
    broken = os.fdopen(writer, "w")
    monkeypatch.setattr("sys.stderr", broken)
    logs.configure("text", seen.append)
    structlog.get_logger().info("still_there")
    assert len(seen) == 1
    assert b"still_there" in seen[0]
    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):
        broken.close()


def test_what_libraries_log_is_seen_too_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[bytes] = []
    logs.configure("text", seen.append)
    try:
        raise KeyError("a bug")
    except KeyError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    assert b"Exception in ASGI application" in seen[0]
    assert seen[-1] == b"KeyError: 'a bug'"
    assert "KeyError: 'a bug'" in capsys.readouterr().err


def test_what_libraries_log_is_json_where_our_own_lines_are() -> None:
    seen: list[bytes] = []
    logs.configure("json", seen.append)
    try:
        raise KeyError("a bug\nof two lines")
    except KeyError:
        logging.getLogger("uvicorn.error").exception("Exception at %s\x1b[2J", "https://me:sesame@hub.example/x")
    (line,) = seen
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("error", "uvicorn.error")
    assert told["event"].startswith("Exception at https://")
    assert "hub.example" in told["event"]
    assert "KeyError" in told["exception"]
    assert "request_id" not in told
    assert datetime.fromisoformat(told["timestamp"]).tzinfo is not None
    assert not {"sesame", "\x1b"} & set(re.findall(r"sesame|\x1b", str(told)))


def test_a_request_is_named_in_a_library_s_line_of_text(answers_one: None) -> None:
    seen: list[bytes] = []
    logs.configure("text", seen.append)
    logging.getLogger("asyncio").warning("slow at http://me:sesame@host/")
    assert seen[0].endswith(b"asyncio: [one] slow at http://***@host/")


def test_the_form_is_that_which_is_configured_now() -> None:
    seen: list[bytes] = []
    now = [logs.LogSettings(format="json"), logs.LogSettings()]
    logs.configure(None, seen.append, logs.LogControl(lambda: now[0]))
    tell = structlog.get_logger()
    for _ in range(2):
        tell.info("asked")
        logging.getLogger("asyncio").warning("slow")
        now.reverse()
    assert [line.startswith(b"{") for line in seen] == [True, True, False, False]


def test_secrets_are_hidden() -> None:
    seen: list[bytes] = []
    logs.configure("json", seen.append)
    structlog.get_logger().info("asked", api_key="open sesame")
    assert b"sesame" not in seen[0]


def test_urls_are_logged_without_their_credentials() -> None:
    seen: list[bytes] = []
    logs.configure("text", seen.append)
    structlog.get_logger().info("asked", reason="https://me:sesame@hub.example/x does not answer")
    assert b"sesame" not in seen[0]
    assert b"hub.example" in seen[0]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_foreign_text_is_no_second_line_and_drives_no_terminal(log_format: LogFormat) -> None:
    seen: list[bytes] = []
    logs.configure(log_format, seen.append)
    evil = "x\n2026-01-01T00:00:00Z [info] forged\x1b[2J\x9b"
    structlog.get_logger().info("asked", reason=evil, names=[evil], odd=KeyError(evil))
    logging.getLogger("uvicorn.error").warning("received %s", evil.replace("\n", " "))
    assert len(seen) == 2
    assert not any(char in line.decode() for line in seen for char in "\x1b\x9b")


def test_a_line_has_a_longest_length() -> None:
    seen: list[bytes] = []
    logs.configure("text", seen.append)
    structlog.get_logger().info("asked", reason="x" * 10_000_000, names=["y" * 10_000_000])
    logging.getLogger("uvicorn.error").warning("z" * 10_000_000)
    assert max(map(len, seen)) < 30_000


def test_what_is_below_the_level_is_left_out_and_the_level_changes_at_once() -> None:
    seen: list[bytes] = []
    control = logs.configure("text", seen.append)
    log = structlog.get_logger()
    for level, told in (("info", 3), ("debug", 4), ("warning", 2), ("error", 1)):
        control.set_level(level)  # type: ignore[arg-type]  # of the names that there are
        seen.clear()
        log.debug("d")
        log.info("i")
        log.warning("w")
        log.error("e")
        assert len(seen) == told, level


def test_the_configurations_level_counts_when_it_changes() -> None:
    configured: list[logs.LogSettings] = [logs.LogSettings("info")]
    control = logs.LogControl(lambda: configured[-1])
    control.set_level("debug")
    levels = []
    for settings in (logs.LogSettings("info", files=1), logs.LogSettings("error"), logs.LogSettings("info")):
        configured.append(settings)
        levels.append(str(control.level))
    assert levels == ["debug", "error", "info"]


def test_one_cause_writes_so_many_lines_and_others_go_on() -> None:
    seen: list[bytes] = []
    logs.configure("text", seen.append, logs.LogControl(flood=Flood(burst=10, per_second=0)))
    log, library = structlog.get_logger(), logging.getLogger("uvicorn.error")
    for number in range(1000):
        log.warning("garbage", number=number)
        library.warning("Invalid HTTP request received: %d", number)
    log.info("something_else")
    assert len(seen) == 21
    assert b"something_else" in seen[-1]


def test_what_was_left_out_is_counted() -> None:
    flood = Flood(burst=2, per_second=1, causes=2)
    assert [flood.passes("a", 0.0) for _ in range(5)] == [0, 0, None, None, None]
    assert flood.passes("b", 0.0) == 0
    assert flood.passes("a", 1.0) == 3
    assert flood.passes("a", 1.0) is None
    assert [flood.passes(f"cause {number}", 2.0) for number in range(100)] == [0] * 100
    assert len(flood._buckets) == 2


ROTATING = """
import sys
from pathlib import Path
import structlog
from supervisor.system import logs
from supervisor.core.text.flood import Flood
from supervisor.system.logfile import LogFile
settings = logs.LogSettings("info", 10_000, 3)
control = logs.LogControl(lambda: settings, LogFile(Path(sys.argv[1])), Flood(burst=10**9))
logs.configure("json", lambda line: None, control)
for number in range(1000):
    structlog.get_logger().info("line", number=number)
print("to standard output")
"""


def test_the_file_behind_standard_error_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    with path.open("ab") as file:
        subprocess.run([sys.executable, "-c", ROTATING, str(path)], stdout=file, stderr=file, check=True)
    files = [path, tmp_path / "daemon.log.1", tmp_path / "daemon.log.2"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 10_000 for file in files)
    lines = [line for file in reversed(files) for line in file.read_text().splitlines()]
    assert lines[-1] == "to standard output"
    numbers = [json.loads(line)["number"] for line in lines[:-1]]
    assert numbers == list(range(numbers[0], 1000))


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.log"
    (tmp_path / "daemon.log").touch()
    with theirs.open("ab") as file:
        subprocess.run(
            [sys.executable, "-c", ROTATING, str(tmp_path / "daemon.log")], stdout=file, stderr=file, check=True
        )
    assert len(theirs.read_text().splitlines()) == 1001
    assert sorted(tmp_path.iterdir()) == [tmp_path / "daemon.log", theirs]


def test_lines_name_the_request_until_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", lambda line: None)

    def line() -> dict[str, object]:
        structlog.get_logger().info("said")
        found: dict[str, object] = json.loads(capsys.readouterr().err)
        return found

    async def scene() -> None:
        assert "request_id" not in line()
        gone = asyncio.Event()

        async def engine() -> None:
            assert line()["request_id"] == "r1"
            await gone.wait()
            assert "request_id" not in line()

        async def request() -> asyncio.Task[None]:
            one = requestid.answering("r1")
            started = asyncio.create_task(engine())
            assert (await asyncio.to_thread(line))["request_id"] == "r1"
            logging.getLogger("library").warning("%s happened", "this")
            told = json.loads(capsys.readouterr().err)
            assert (told["event"], told["request_id"]) == ("this happened", "r1")
            one.over()
            return started

        started = await asyncio.create_task(request())
        gone.set()
        await started
        assert "request_id" not in line()

    asyncio.run(scene())
