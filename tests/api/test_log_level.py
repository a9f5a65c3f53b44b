"""How much the daemon's log tells, set while it runs: by request, by command, by the configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """No engine is needed to log."""
    with (
        scratch_home() as home,
        running_daemon(home, Path("/nonexistent"), {"server": {"log_level": "warning"}}) as one,
    ):
        yield one


def level(daemon: RunningDaemon) -> str:
    return str(daemon.http.get("/api/v1/logs/level").json()["level"])


def test_the_level_is_the_configurations_until_somebody_says_another(daemon: RunningDaemon, tmp_path: Path) -> None:
    assert level(daemon) == "warning"
    output = daemon.home / "daemon-output.log"
    assert "[warning" not in output.read_text()
    assert "daemon_ready" not in output.read_text()
    assert daemon.http.post("/api/v1/logs/level", json={"level": "info"}).json() == {"level": "info"}
    assert "log_level" in output.read_text()
    assert Cli(tmp_path)("logs", "--level", "debug", "--url", daemon.url).code == 0
    assert level(daemon) == "debug"


def test_a_reload_sets_it_when_the_file_says_another(daemon: RunningDaemon) -> None:
    daemon.http.post("/api/v1/logs/level", json={"level": "debug"})
    assert daemon.http.post("/api/v1/config/reload").status_code == 200
    assert level(daemon) == "debug"
    (daemon.home / "test.yaml").write_text("server: {log_level: error}")
    assert daemon.http.post("/api/v1/config/reload").status_code == 200
    assert level(daemon) == "error"


def test_every_line_is_json_where_that_is_configured_until_another_form_is() -> None:
    settings = {"server": {"log_format": "json"}}
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), settings) as one:
        output = home / "daemon-output.log"
        wait_until(lambda: "daemon_ready" in output.read_text(), "it is ready")
        told = [json.loads(line) for line in output.read_text().splitlines()]
        assert {"config_file", "daemon_ready"} <= {line["event"] for line in told}
        (home / "test.yaml").write_text("{}")
        assert one.http.post("/api/v1/config/reload").status_code == 200
        assert "config_reloaded" in output.read_text().splitlines()[-1]
        assert not output.read_text().splitlines()[-1].startswith("{")


def test_the_command_line_s_form_holds_in_place_of_the_configuration_s() -> None:
    arguments = ("--log-format", "json")
    with scratch_home() as home, running_daemon(home, Path("/nonexistent"), None, *arguments) as one:
        output = home / "daemon-output.log"
        assert one.http.post("/api/v1/config/reload").status_code == 200
        assert all(line.startswith("{") for line in output.read_text().splitlines())


def test_a_level_that_there_is_not_is_refused(daemon: RunningDaemon) -> None:
    assert daemon.http.post("/api/v1/logs/level", json={"level": "loud"}).status_code == 400
    assert daemon.http.get("/api/v1/logs?lines=1").status_code == 200
