"""Where things live."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from supervisor.errors import FolderRefused
from supervisor.system.paths import places

WHERE = places({"SUPERVISOR_HOME": "/h", "HOME": "/h/x"})
OWN = {WHERE.daemon_log, WHERE.cli_errors}


@pytest.mark.parametrize("model", ["daemon", "cli-errors", "../daemon", "daemon\udcff"])
def test_no_model_writes_to_a_log_of_the_programs_own(model: str) -> None:
    path = WHERE.engine_log(model)
    assert path not in OWN
    assert path.parent == Path("/h/logs")


def test_each_model_has_a_log_of_its_own() -> None:
    models = [
        "a_b",
        "a/b",
        "a:b",
        "..",
        "_",
        "",
        "x" * 100,
        "x" * 101,
        "x" * 102,
        "\u6a21" * 100,
        "\u578b" * 100,
        "daemon",
    ]
    paths = {WHERE.engine_log(model) for model in models}
    assert len(paths) == len(models)
    assert all(len(path.name.encode()) < 250 for path in paths)


def test_an_ordinary_name_is_the_name_of_its_log() -> None:
    assert WHERE.engine_log("Qwen3-8B.Q4_K_M").name == "Qwen3-8B.Q4_K_M.log"


def test_the_home_of_nobody_is_a_folder_like_any_other() -> None:
    assert places({"SUPERVISOR_HOME": "~nobody-there/x", "HOME": "/h/x"}).state == Path.cwd() / "~nobody-there/x"


def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    with pytest.raises(FolderRefused, match="set HOME"):
        places({})


def test_every_folder_is_absolute_where_home_is_not() -> None:
    where = places({"HOME": "here"})
    assert all(path.is_absolute() for path in (where.state, where.cache, where.engines, where.config))


def test_a_runtime_folder_that_is_not_this_users_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`su` and `sudo` may leave the variable of the user before, who can exchange what lies there."""
    runtime = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)}
        assert places(env).runtime == runtime / "llsup"
        another = runtime.stat().st_uid + 1
        monkeypatch.setattr("os.getuid", lambda: another)
        assert runtime not in places(env).runtime.parents
    finally:
        runtime.rmdir()
    assert runtime not in places(env).runtime.parents, "it is gone"
