"""`clean` takes what is ours, all of it, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.cli.background import start
from supervisor.cli.leftovers import BEFORE, LINK, MOUNTED, UNKNOWN, UNMARKED, _bytes, leftovers, remove
from supervisor.system.owned import MARKER, own_folder, read_marker, shared_folder
from supervisor.system.paths import Places, places
from tests.cli.conftest import Cli
from tests.cli.test_daemon import PROGRAM
from tests.fakes.fake_daemon import FakeDaemon
from tests.support.patience import PATIENCE


def fill(folder: Path, *names: str) -> None:
    """Files of ten bytes."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"0123456789")


def installation(home: Path, **env: Path) -> Places:
    """The folders of a user with this home, whose sockets are nobody else's."""
    found = places({"HOME": str(home), **{name: str(value) for name, value in env.items()}})
    return replace(found, runtime=home / "run")


def clean_all(where: Places, *, checkout: Path | None = None, keep_engines: bool = False) -> dict[str, int]:
    """Remove everything; bytes by kind."""
    found = leftovers(where, checkout, keep_engines=keep_engines)
    for leftover in found:
        remove(leftover)
    return {leftover.what: leftover.size for leftover in found if leftover.emptied or leftover.entries}


def without_markers(folder: Path) -> list[str]:
    return [name for name in files(folder) if Path(name).name != MARKER]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def taken_into_use(where: Places) -> None:
    """What the program does before it writes anything."""
    own_folder(where.state)
    own_folder(where.cache)
    shared_folder(where.engines)


def stays(where: Places) -> dict[str, str]:
    """Why, by path relative to the folder."""
    return {
        str(left.path.relative_to(found.folder)): left.reason
        for found in leftovers(where, None, keep_engines=False)
        for left in found.left
    }


def test_what_the_program_wrote_goes_and_the_rest_stays_and_is_listed(tmp_path: Path) -> None:
    where = installation(tmp_path)
    taken_into_use(where)
    fill(where.state, "endpoint.json", "logs/a.log", "anything/new.db")
    fill(where.cache, "capabilities.json", "kv/k/1-2-3.slot", "whatever", "engines/b1/manifest.json")
    fill(where.engines, "b1/bin/llama-server", "chosen.json", "mine/manifest.json")
    fill(where.config, "supervisor.yaml")
    listed = {"anything": UNKNOWN, "whatever": UNKNOWN, "mine": UNKNOWN}
    assert {name: reason for name, reason in stays(where).items() if name != "supervisor.yaml"} == listed
    assert clean_all(where) == {"state": 20, "cache": 20, "engines": 30}
    kept = [where.config / "supervisor.yaml", where.state / "anything" / "new.db", where.cache / "whatever"]
    kept += [where.engines / "mine" / "manifest.json"]
    assert without_markers(tmp_path) == sorted(str(path.relative_to(tmp_path)) for path in kept)


def test_of_folders_with_nothing_else_in_them_nothing_is_left(tmp_path: Path) -> None:
    where = installation(tmp_path)
    taken_into_use(where)
    fill(where.state, "endpoint.json", "logs/a.log", "children/12.json")
    fill(where.state, ".endpoint.json.0a1b2c3d", "children/.13.json.0a1b2c3d")  # of writers that were killed
    fill(where.engines, "b1/manifest.json", "b1/bin/llama-server", "scratch/x/y", "tools/cmake/z")
    clean_all(where)
    assert not any(folder.exists() for folder in (where.state, where.cache, where.engines))


@pytest.mark.parametrize("name", ["llama-supervisor", "mine"])
def test_a_folder_without_a_marker_is_nobodys_whatever_its_name(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    where = installation(tmp_path, SUPERVISOR_HOME=home)
    fill(home, "logs/app.log", "state.db", "cache/photos/1.jpg", "thesis.tex")
    before = files(tmp_path)
    assert clean_all(where) == {}
    assert files(tmp_path) == before
    assert {left.reason for found in leftovers(where, None, keep_engines=False) for left in found.left} == {UNMARKED}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"made_by": "another", "id": "1", "made": true, "before": []}'])
def test_a_marker_of_somebody_else_is_none(tmp_path: Path, content: str) -> None:
    where = installation(tmp_path, SUPERVISOR_HOME=tmp_path)
    fill(tmp_path, "state.db")
    (tmp_path / MARKER).write_text(content)
    assert clean_all(where) == {}


def test_what_was_there_before_the_program_stays(tmp_path: Path) -> None:
    where = installation(tmp_path, SUPERVISOR_HOME=tmp_path / "mine")
    fill(where.state, "logs/app.log", "thesis.tex")
    own_folder(where.state)
    fill(where.state, "logs/daemon.log", "endpoint.json", "children/12.json")
    assert stays(where) == {"logs": BEFORE, "thesis.tex": BEFORE}
    assert clean_all(where) == {"state": 20}
    assert files(where.state) == ["logs/app.log", "logs/daemon.log", "thesis.tex"]


def test_a_folder_that_was_found_empty_stays(tmp_path: Path) -> None:
    where = installation(tmp_path, SUPERVISOR_HOME=tmp_path)
    own_folder(where.state)
    fill(where.state, "endpoint.json")
    clean_all(where)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_that_was_shown_is_the_one_that_is_emptied(tmp_path: Path) -> None:
    where = installation(tmp_path, SUPERVISOR_HOME=tmp_path / "mine")
    own_folder(where.state)
    fill(where.state, "endpoint.json")
    shown = leftovers(where, None, keep_engines=True)
    (where.state / MARKER).unlink()
    own_folder(where.state)
    for one in shown:
        remove(one)
    assert "endpoint.json" in files(where.state)


def test_engines_can_stay(tmp_path: Path) -> None:
    where = installation(tmp_path)
    taken_into_use(where)
    fill(where.cache, "capabilities.json", "engines/b1/manifest.json")
    assert clean_all(where, keep_engines=True) == {"cache": 10, "state": 0}
    assert without_markers(where.cache) == ["engines/b1/manifest.json"]


@pytest.mark.parametrize("link", ["logs", "children", "kv", "cache", "state.db", "scratch", "headers/x.header"])
def test_links_are_not_followed(tmp_path: Path, link: str) -> None:
    where = installation(tmp_path, SUPERVISOR_HOME=tmp_path / "home", SUPERVISOR_ENGINES=tmp_path / "engines")
    taken_into_use(where)
    fill(tmp_path / "precious", "daemon.log", "12.json", "k/1.slot", "x.header", "capabilities.json", MARKER)
    top = {"kv": where.cache, "scratch": where.engines, "headers/x.header": where.cache}.get(link, where.state)
    place = top / link
    if place.is_dir():
        (place / MARKER).unlink()
        place.rmdir()
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path / "precious")
    before = files(tmp_path / "precious")
    assert LINK in stays(where).values()
    clean_all(where)
    assert files(tmp_path / "precious") == before
    assert place.is_symlink()


def test_what_goes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is about to end removes files, too."""
    where = installation(tmp_path)
    taken_into_use(where)
    fill(where.engines, "scratch/a/1", "scratch/b/2")
    (shown,) = [one for one in leftovers(where, None, keep_engines=False) if one.what == "engines"]
    rmtree = shutil.rmtree

    def beside_another(path: Path) -> None:
        monkeypatch.undo()
        rmtree(path / "a")
        raise FileNotFoundError(path / "a")

    monkeypatch.setattr("shutil.rmtree", beside_another)
    remove(shown)
    assert not (where.engines / "scratch").exists()
    assert _bytes([tmp_path / "gone"]) == 0


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("whose", ["marker", "folder"])
def test_what_another_user_has_made_or_marked_is_not_ours(tmp_path: Path, whose: str) -> None:
    """In a shared temp folder anybody can make the folder of our sockets, and swap it for a link meanwhile."""
    where = installation(tmp_path, SUPERVISOR_HOME=tmp_path / "home")
    own_folder(where.state)
    fill(where.state, "endpoint.json")
    os.chown(where.state / MARKER if whose == "marker" else where.state, 4711, 4711)
    assert stays(where) == {".": UNMARKED}
    assert clean_all(where) == {}


def test_a_marker_that_is_a_pipe_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MARKER)
    assert read_marker(tmp_path) is None


def test_only_sockets_that_nobody_listens_on_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # socket paths are short; the folder's own may not be
    runtime = Path("run")
    own_folder(runtime)
    where = replace(places({"HOME": str(tmp_path)}), runtime=runtime)
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as live:
        dead.bind("run/dead.sock")
        live.bind("run/live.sock")
        live.listen()
        dead.close()
        assert set(clean_all(where)) == {"sockets"}
        assert files(runtime) == [MARKER, "live.sock"]


def test_the_environment_of_a_checkout_goes_if_bin_made_it(tmp_path: Path) -> None:
    where = installation(tmp_path / "home")
    fill(tmp_path / "repo", ".venv/bin/python", ".venv.setup/log", "README.md")
    assert clean_all(where, checkout=tmp_path / "repo") == {}
    fill(tmp_path / "repo", ".venv/ready")
    assert clean_all(where, checkout=tmp_path / "repo") == {"environment": 30}
    assert files(tmp_path / "repo") == ["README.md"]


def test_dry_run_shows_and_leaves(cli: Cli, daemon: FakeDaemon) -> None:
    fill(cli.state, "logs/daemon.log", "notes.txt")
    shown = cli("clean", "--dry-run", "--keep-environment")
    assert shown.out.splitlines()[1].startswith("state")
    assert cli("clean", "--dry-run", "--json").json()["items"][0]["paths"][0] == str(cli.state / "endpoint.json")
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
    fill(shared_folder(where.engines), "b1/manifest.json", "b1/bin/llama-server")
    elsewhere = Cli(cli.folder, SUPERVISOR_URL="http://127.0.0.1:1")  # is not this verb's concern
    outcome = elsewhere("clean", "--keep-environment", "--yes", "--json")
    assert {item["what"] for item in outcome.json()["items"]} >= {"state", "engines"}
    assert not where.state.exists()
    assert not where.engines.exists()
    assert cli("clean", "--keep-environment").out.startswith("nothing to remove\n")


def test_nothing_that_is_mounted_within_goes(cli: Cli, tmp_path: Path) -> None:
    """A mount is another folder, whose files are somebody's."""
    elsewhere, engines = tmp_path / "elsewhere", tmp_path / "engines"
    shared_folder(engines)
    for place in ("scratch", "b1/models"):
        (engines / place).mkdir(parents=True)
    fill(engines, "b1/manifest.json", "b1/bin/llama-server", "cuda/nvcc")
    fill(elsewhere, "precious")
    script = 'for place in scratch b1/models; do mount --bind "$0" "$1/$place" || exit 77; done; shift; exec "$@"'
    apart = ["unshare", "-m" if os.getuid() == 0 else "-rm", "/bin/sh", "-c", script, str(elsewhere), str(engines)]
    try:
        command = [*apart, *cli.argv("clean", "--yes", "--keep-environment", "--json")]
        done = subprocess.run(command, env=cli.env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except OSError:
        pytest.skip("there is no `unshare`")
    if done.returncode in {1, 77} and not done.stdout:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (elsewhere / "precious").is_file()
    assert (engines / "b1" / "bin" / "llama-server").is_file(), "a part of an engine is no engine"
    assert not (engines / "cuda").exists()
    left = {one["path"]: one["reason"] for one in json.loads(done.stdout)["left"]}
    assert left[str(engines / "scratch")] == left[str(engines / "b1")] == MOUNTED
