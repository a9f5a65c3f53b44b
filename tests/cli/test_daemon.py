"""Finding, starting and ending the daemon."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from supervisor.cli.background import start
from supervisor.cli.daemon import Daemon, at_endpoint
from supervisor.cli.ending import stop_daemon
from supervisor.errors import DaemonError
from supervisor.system.paths import Places, places
from tests.cli.conftest import Cli
from tests.fakes import fake_daemon
from tests.fakes.fake_daemon import FakeDaemon
from tests.support.daemon import wait_until
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

PROGRAM = [sys.executable, "-P", fake_daemon.__file__]


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("SUPERVISOR_HOME", str(tmp_path / "home"))  # for the program, which reads it
    return places({"SUPERVISOR_HOME": str(tmp_path / "home")})


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_the_endpoint_file_leads_to_the_daemon(cli: Cli, daemon: FakeDaemon) -> None:
    assert cli("ps", "--json").json()["url"] == daemon.url


def test_an_endpoint_file_of_a_dead_daemon_counts_for_nothing(cli: Cli) -> None:
    cli.state.mkdir()
    file = cli.state / "endpoint.json"
    for content in (f'{{"url": "http://127.0.0.1:{free_port()}", "pid": 1}}', "{", "[]", '{"url": 1}'):
        file.write_text(content)
        assert cli("ps").code == 3, content


def test_another_program_on_a_dead_daemons_port_is_not_it(cli: Cli) -> None:
    with FakeDaemon() as fake:
        fake.write_endpoint(cli.state, pid=fake.pid + 1)
        assert cli("ps").code == 3
        assert cli("stop").out == "no daemon is running\n"
    assert not fake.called("/api/v1/shutdown")


def test_a_daemon_that_breaks_off_its_answer_is_asked_again(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.breaks = 3
    assert cli("ps").code == 0
    assert len(daemon.called("/api/v1/status")) == 4


def test_a_daemon_that_ends_while_it_answers_is_none(cli: Cli) -> None:
    with FakeDaemon(pid=dead_pid()) as fake:
        fake.write_endpoint(cli.state)
        fake.breaks = 1
        assert cli("ps").code == 3
    assert len(fake.called("/api/v1/status")) == 1


def test_another_version_is_named_and_what_takes_over_from_it(cli: Cli) -> None:
    with FakeDaemon(version="0.0.9") as fake:
        fake.write_endpoint(cli.state)
        for verb in (["ps"], ["load", "demo"], ["models"]):
            shown = cli(*verb)
            assert (shown.code, shown.err.count("[version_mismatch]")) == (1, 1), verb
        assert "0.0.9" in shown.err
        assert "supervisor upgrade" in shown.err
        assert not fake.called("/api/v1/models/load")


def test_start_waits_until_it_answers_and_stop_until_it_is_gone(where: Places) -> None:
    daemon = start(PROGRAM, where, None)
    assert at_endpoint(where, None) is not None
    pid = stop_daemon(daemon)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert at_endpoint(where, None) is None


def test_the_daemon_leads_a_session_of_its_own(where: Places) -> None:
    daemon = start(PROGRAM, where, None)
    try:
        assert os.getsid(daemon.status["pid"]) == daemon.status["pid"]
    finally:
        stop_daemon(daemon)


def test_starts_at_once_end_with_one_daemon(where: Places) -> None:
    found: list[Daemon] = []
    threads = [threading.Thread(target=lambda: found.append(start(PROGRAM, where, None))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    try:
        assert len(found) == 4
        assert len({daemon.status["pid"] for daemon in found}) == 1
    finally:
        stop_daemon(found[0])


def test_start_outlasts_a_daemon_on_its_way_out(where: Places) -> None:
    where.state.mkdir(parents=True)
    found: list[Daemon] = []
    starting = threading.Thread(target=lambda: found.append(start(PROGRAM, where, None)))
    with where.daemon_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starting.start()
        log = where.daemon_log
        wait_until(lambda: log.exists() and "already_running" in log.read_text(), "a refusal")
    starting.join(PATIENCE)
    assert len(found) == 1
    stop_daemon(found[0])


def test_an_early_exit_is_told_in_the_daemons_words_else_with_the_logs_end(where: Places) -> None:
    where.daemon_log.parent.mkdir(parents=True)
    where.daemon_log.write_text("error: an older one [usage]\n")
    with pytest.raises(DaemonError) as caught:
        start([*PROGRAM, "--exit", "7"], where, None)
    assert (caught.value.code, caught.value.message) == ("address_in_use", "the port is taken")
    with pytest.raises(DaemonError, match=r"exit status 7.+daemon\.log") as caught:
        start([sys.executable, "-c", "print('gone'); raise SystemExit(7)"], where, None)
    assert (caught.value.code, caught.value.log_lines) == ("daemon_error", ("gone",))


def test_stop_is_idempotent(cli: Cli) -> None:
    first = cli("stop")
    assert (first.code, first.out) == (0, "no daemon is running\n")
    assert cli("stop", "--json").json() == {"stopped": False, "pid": None}
    assert cli("stop", "--url", f"http://127.0.0.1:{free_port()}").code == 0


def test_stop_from_the_command_line(cli: Cli, where: Places) -> None:
    pid = start(PROGRAM, where, None).status["pid"]
    assert cli("stop").out == f"the daemon (pid {pid}) has stopped\n"
    assert cli("ps").code == 3


def test_stop_of_a_daemon_named_by_url_waits_for_its_silence(cli: Cli) -> None:
    with FakeDaemon(pid=1) as fake:
        fake.on_shutdown = lambda: threading.Thread(target=fake.close).start()
        assert cli("stop", "--url", fake.url, "--json").json() == {"stopped": True, "pid": 1}
