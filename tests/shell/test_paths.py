"""Where things live."""

from __future__ import annotations

from pathlib import Path

import pytest

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
