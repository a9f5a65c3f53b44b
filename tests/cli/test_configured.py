"""Which configuration counts is never a secret: commands that find another one than the daemon's say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon

ASKING = [("ps",), ("load", "demo"), ("models",), ("unload", "demo"), ("config", "show"), ("config", "check")]


def configuration(folder: Path) -> Path:
    """A valid one of this folder."""
    folder.mkdir(exist_ok=True)
    path = folder / "supervisor.yaml"
    path.write_text("models: {}\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
@pytest.mark.parametrize("used", [None, "/etc/supervisor.yaml"])
def test_a_configuration_that_the_daemon_does_not_use_is_named(
    cli: Cli, daemon: FakeDaemon, arguments: tuple[str, ...], used: str | None
) -> None:
    daemon.config["path"] = used
    here = configuration(cli.folder)
    told = cli(*arguments).err
    assert f"The running daemon uses {used or 'no configuration file'}, not {here}." in told
    assert f"`supervisor stop`, then `supervisor start --config {here}`" in told


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_the_daemons_own_configuration_is_nothing_to_talk_about(
    cli: Cli, daemon: FakeDaemon, arguments: tuple[str, ...]
) -> None:
    daemon.config["path"] = str(configuration(cli.folder))
    assert "configuration" not in cli(*arguments).err


def test_one_that_is_named_counts_before_that_of_the_folder(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.config["path"] = str(configuration(cli.folder))
    other = configuration(cli.folder / "other")
    assert f"not {other}." in cli("load", "demo", "--config", str(other)).err
    assert f"not {other}." in Cli(cli.folder, SUPERVISOR_CONFIG=str(other))("ps").err
    assert "configuration" not in cli("load", "demo", "--config", daemon.config["path"]).err


def test_a_file_that_others_can_write_is_none_that_would_count(cli: Cli, daemon: FakeDaemon) -> None:
    configuration(cli.folder).chmod(0o666)
    assert cli("ps").err == ""


def test_a_daemon_that_is_named_by_url_has_its_own_configuration(cli: Cli, daemon: FakeDaemon) -> None:
    configuration(cli.folder)
    assert cli("ps", "--url", daemon.url).err == ""


def test_doctor_warns(cli: Cli, daemon: FakeDaemon) -> None:
    here = configuration(cli.folder)
    checks = {one["name"]: one for one in cli("doctor", "--json").json()["checks"]}
    assert checks["daemon configuration"]["state"] == "warn"
    assert f"not {here}." in checks["daemon configuration"]["message"]
    daemon.config["path"] = str(here)
    assert "daemon configuration" not in [one["name"] for one in cli("doctor", "--json").json()["checks"]]


def test_reload_says_what_changed(cli: Cli, daemon: FakeDaemon) -> None:
    found = {"added": ["a", "b"], "removed": [], "relaunched": ["c"], "adjusted": [], "restart_needed": ["server.port"]}
    daemon.answers["/api/v1/config/reload"] = found
    daemon.config["path"] = "/etc/supervisor.yaml"
    assert cli("config", "reload").out.splitlines() == [
        "reloaded: /etc/supervisor.yaml",
        "  added: a, b",
        "  relaunched: c",
        "  restart needed: server.port",
    ]
    assert cli("config", "reload", "--json").json() == found


def test_stop_says_what_it_waits_for(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.models["demo"] |= {"leases": 2}
    stopping = cli.start("stop")
    assert stopping.stderr is not None
    assert stopping.stderr.readline() == f"stopping the daemon (pid {daemon.pid}); waiting for 2 running requests\n"
    stopping.kill()
    stopping.communicate()
