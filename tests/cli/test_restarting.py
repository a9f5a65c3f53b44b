"""`restart` and `upgrade`, beside a scripted daemon; tests/takeover has real ones."""

from __future__ import annotations

import json

import pytest

from supervisor import __version__
from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon

PATH = "/api/v1/restart"


@pytest.mark.parametrize("verb", ["restart", "upgrade"])
def test_a_daemon_of_another_version_is_taken_over(cli: Cli, verb: str) -> None:
    with FakeDaemon(version="0.0.9") as fake:
        fake.write_endpoint(cli.state)
        shown = cli(verb)
        assert shown.code == 0, shown.err
        assert shown.out == f"the daemon (pid {fake.pid}) runs version {__version__}\n"
        assert len(fake.called(PATH)) == 1


def test_restart_takes_over_from_the_same_version_and_upgrade_does_not(cli: Cli, daemon: FakeDaemon) -> None:
    shown = cli("upgrade")
    assert (shown.code, shown.out) == (0, f"the daemon (pid {daemon.pid}) runs version {__version__} already\n")
    told = {"pid": daemon.pid, "version": __version__, "before": __version__}
    assert json.loads(cli("upgrade", "--json").out) == told
    assert not daemon.called(PATH)
    assert json.loads(cli("restart", "--json").out) == told
    assert len(daemon.called(PATH)) == 1


def test_why_nothing_took_over_is_said(cli: Cli, daemon: FakeDaemon) -> None:
    daemon.refusal = 409, "takeover_failed", "The program on disk does not start."
    shown = cli("restart")
    assert shown.code == 1
    assert "does not start. [takeover_failed]" in shown.err


def test_one_that_was_named_by_url_is_never_stopped_in_place_of_that(cli: Cli) -> None:
    with FakeDaemon() as fake:
        fake.refusal = 501, "takeover_unsupported", "On Linux alone."
        shown = cli("restart", "--url", fake.url)
        assert shown.code == 1
        assert "[takeover_unsupported]" in shown.err
        assert not fake.called("/api/v1/shutdown")


def test_without_a_daemon_there_is_nothing_to_restart(cli: Cli) -> None:
    for verb in ("restart", "upgrade"):
        shown = cli(verb)
        assert (shown.code, "[daemon_unreachable]" in shown.err) == (3, True)
