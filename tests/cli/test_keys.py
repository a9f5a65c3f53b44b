"""`keys`, against a real daemon: from an open door to a closed one, and what each verb prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home


@pytest.fixture
def open_daemon() -> Iterator[RunningDaemon]:
    with scratch_home() as home, running_daemon(home, Path("/nonexistent")) as daemon:
        yield daemon


def test_keys_from_the_first_to_the_last(tmp_path: Path, open_daemon: RunningDaemon) -> None:
    cli = Cli(tmp_path, SUPERVISOR_URL=open_daemon.url)
    assert cli("keys", "list").out == "no key was added; `keys add` adds one\n"
    early = cli("keys", "add", "bot")
    assert (early.code, early.err.split()[-1]) == (1, "[key_refused]")

    first = cli("keys", "add", "me", "--scope", "manage", "--scope", "infer")
    assert (first.code, first.out.startswith("sup-"), "not shown again" in first.err) == (0, True, True)
    refused = cli("keys", "list")
    assert (refused.code, refused.err.split()[-1]) == (1, "[unauthorized]")

    cli.env["SUPERVISOR_API_KEY"] = first.out.strip()
    limits = ("--requests-per-minute", "5", "--token-budget", "1000")
    bot = cli("keys", "add", "bot", "--model", "qwen*", "--model", "demo", "--expires", "30d", *limits, "--json").json()
    assert (bot["models"], bot["scopes"]) == (["qwen*", "demo"], ["infer"])
    assert bot["expires_at"] - bot["created_at"] == pytest.approx(30 * 86_400, abs=120)
    assert [line.split() for line in cli("keys", "list").out.splitlines()] == [
        ["NAME", "STATE", "SCOPES", "MODELS", "EXPIRES", "REQUESTS", "TOKENS", "LIMITS"],
        ["me", "active", "infer,manage", "all", "never", "4", "0", "-"],
        ["bot", "active", "infer", "qwen*,demo", "in", "29d", "0", "0", "5", "requests/min,", "1000", "tokens"],
    ]

    rotated = cli("keys", "rotate", "bot").out.strip()
    assert (rotated.startswith("sup-"), rotated != bot["key"]) == (True, True)
    assert cli("keys", "revoke", "me").err.split()[-1] == "[key_refused]"
    assert cli("keys", "revoke", "bot").out == "bot is revoked\n"
    assert [key["state"] for key in cli("keys", "list", "--json").json()["keys"]] == ["active", "revoked"]
    assert cli("keys", "revoke", "me").out == "me is revoked\n"
    del cli.env["SUPERVISOR_API_KEY"]
    assert cli("keys", "list", "--json").code == 0  # the door is open again


def test_a_key_without_the_scope_is_told_which_it_needs(tmp_path: Path, open_daemon: RunningDaemon) -> None:
    cli = Cli(tmp_path, SUPERVISOR_URL=open_daemon.url)
    manager = cli("keys", "add", "me", "--scope", "manage").out.strip()
    user = cli("keys", "add", "bot", "--api-key", manager).out.strip()
    found = cli("ps", "--api-key", user)
    assert (found.code, found.err.split()[-1]) == (1, "[forbidden]")
    assert "`manage` or `read`" in found.err


@pytest.mark.parametrize(
    "arguments",
    [("--expires", "soon"), ("--scope", "root"), ("--requests-per-minute", "0"), ("--token-budget", "many")],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(tmp_path: Path, arguments: tuple[str, str]) -> None:
    assert Cli(tmp_path)("keys", "add", "bot", *arguments).code == 2
