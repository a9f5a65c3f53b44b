"""`clean` takes what is ours, all of it, and nothing else."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.cli.background import start
from supervisor.cli.clean import leftovers, remove
from supervisor.paths import Places, places
from tests.cli.conftest import Cli
from tests.cli.test_daemon import PROGRAM
from tests.fakes.fake_daemon import FakeDaemon


def fill(folder: Path, *names: str) -> None:
    """Files of ten bytes."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"0123456789")


def clean_all(where: Places, *, checkout: Path | None = None, keep_engines: bool = False) -> dict[str, int]:
    """Remove everything; bytes by kind."""
    found = leftovers(where, checkout, keep_engines=keep_engines)
    for leftover in found:
        remove(leftover)
    return {leftover.what: leftover.size for leftover in found}


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_the_default_folders_go_whole_and_configuration_stays(tmp_path: Path) -> None:
    where = places({"HOME": str(tmp_path)})
    fill(where.state, "endpoint.json", "logs/a.log", "anything/new.db")
    fill(where.cache, "capabilities.json", "whatever", "engines/b1/manifest.json", "engines/chosen.json")
    fill(where.config, "supervisor.yaml")
    assert clean_all(where) == {"state": 30, "cache": 20, "engines": 20}
    assert files(tmp_path) == [str(where.config.relative_to(tmp_path) / "supervisor.yaml")]
    assert not where.cache.exists()


def test_engines_can_stay(tmp_path: Path) -> None:
    where = places({"HOME": str(tmp_path)})
    fill(where.cache, "capabilities.json", "engines/b1/manifest.json")
    assert clean_all(where, keep_engines=True) == {"cache": 10}
    assert files(where.cache) == ["engines/b1/manifest.json"]


def test_in_folders_the_user_chose_only_our_files_go(tmp_path: Path) -> None:
    home, engines = tmp_path / "mine", tmp_path / "mine" / "bin"
    where = places({"HOME": str(tmp_path), "SUPERVISOR_HOME": str(home), "SUPERVISOR_ENGINES": str(engines)})
    own = ["endpoint.json", "daemon.lock", "logs/daemon.log.1", "children/12.json", "cache/capabilities.json"]
    own += ["state.db", "state.db-wal", "state.db.damaged-20260101-000000", "cache/engine-digests.json"]
    theirs = ["thesis.tex", "logs/2024/notes.txt", "cache/photos/1.jpg", "bin/ext/manifest.json", "bin/logs/x.txt"]
    fill(home, *own, *theirs, "bin/b1/manifest.json", "bin/b1/bin/llama-server", "bin/chosen.json")
    assert clean_all(where) == {"state": 70, "cache": 20, "engines": 30}
    assert files(home) == sorted(theirs)


def test_a_link_goes_and_its_target_stays(tmp_path: Path) -> None:
    where = places({"HOME": str(tmp_path)})
    fill(tmp_path / "elsewhere", "precious")
    where.state.mkdir(parents=True)
    (where.state / "link").symlink_to(tmp_path / "elsewhere")
    clean_all(where)
    assert files(tmp_path) == ["elsewhere/precious"]


def test_only_sockets_that_nobody_listens_on_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # socket paths are short; the folder's own may not be
    runtime = Path("run")
    runtime.mkdir()
    where = replace(places({"HOME": str(tmp_path)}), runtime=runtime)
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as live:
        dead.bind("run/dead.sock")
        live.bind("run/live.sock")
        live.listen()
        dead.close()
        assert set(clean_all(where)) == {"sockets"}
        assert os.listdir(runtime) == ["live.sock"]


def test_the_environment_of_a_checkout_goes(tmp_path: Path) -> None:
    fill(tmp_path / "repo", ".venv/bin/python", ".venv.setup/log", "README.md")
    where = places({"HOME": str(tmp_path / "home")})
    assert clean_all(where, checkout=tmp_path / "repo") == {"environment": 20}
    assert files(tmp_path / "repo") == ["README.md"]


def test_dry_run_shows_and_leaves(cli: Cli, daemon: FakeDaemon) -> None:
    shown = cli("clean", "--dry-run", "--keep-environment")
    assert shown.out.splitlines()[1].startswith("state")
    assert cli("clean", "--dry-run", "--json").json()["items"][0]["paths"] == [str(cli.state / "endpoint.json")]
    assert (cli.state / "endpoint.json").exists()
    assert not daemon.called("/api/v1/shutdown")


def test_it_asks_first(cli: Cli, daemon: FakeDaemon) -> None:
    refused = cli("clean", "--keep-environment")
    assert (refused.code, refused.err.count("--yes")) == (2, 1)
    assert (cli.state / "endpoint.json").exists()


def test_it_stops_the_daemon_and_nothing_is_left(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERVISOR_HOME", str(cli.state))
    where = places(cli.env)
    start(PROGRAM, where, None)
    fill(where.engines, "b1/manifest.json", "b1/bin/llama-server")
    elsewhere = Cli(cli.folder, SUPERVISOR_URL="http://127.0.0.1:1")  # is not this verb's concern
    outcome = elsewhere("clean", "--keep-environment", "--yes", "--json")
    assert {item["what"] for item in outcome.json()["items"]} >= {"state", "engines"}
    assert not where.state.exists()
    assert not where.engines.exists()
    assert cli("clean", "--keep-environment").out == "nothing to remove\n"
