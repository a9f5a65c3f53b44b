"""`tune` with a real daemon and engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon

pytestmark = pytest.mark.engine

QUICK = ("--prompt", "32", "--answer", "4", "--most", "1")


@pytest.fixture
def real(tmp_path: Path, engine_binary: Path, demo_model: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path, SUPERVISOR_LLAMA_SERVER=str(engine_binary))
    models = {"talker": {"file": str(demo_model), "ctx_size": 1024, "parallel": 1}}
    (tmp_path / "supervisor.yaml").write_text(f"# mine\n{yaml.safe_dump({'models': models})}")
    yield cli
    cli("stop")


def test_the_best_is_found_and_written_and_the_model_is_as_it_was(real: Cli, tmp_path: Path) -> None:
    found = real("tune", "talker", *QUICK, "-ub", "512", "--write", "--json")
    assert found.code == 0, found.err
    told = found.json()
    first, best = told["trials"][0], told["best"]
    assert first["options"] == {}
    assert best in told["trials"]
    assert best["seconds"] <= first["seconds"]
    measured = [row for row in told["trials"] if row["seconds"]]
    assert {name for row in measured for name in row["options"]} >= {"threads", "cache_type_k"}
    assert not any("ubatch_size" in row["options"] for row in told["trials"]), "it was set"
    (status,) = [one for one in real("models", "--json").json()["models"] if one["id"] == "talker"]
    assert status["state"] == "unloaded"
    text = (tmp_path / "supervisor.yaml").read_text()
    assert text.startswith("# mine\n")
    assert yaml.safe_load(text)["models"]["talker"].items() >= {"ubatch_size": 512, **best["options"]}.items()


def test_what_was_loaded_stays_loaded_with_its_options(real: Cli) -> None:
    assert real("load", "talker", "-t", "1").code == 0
    shown = real("tune", "talker", *QUICK, "--minutes", "0")
    assert shown.code == 0, shown.err
    assert "as it is" in shown.out
    (status,) = [one for one in real("ps", "--json").json()["models"] if one["id"] == "talker"]
    assert (status["state"], status["given"]) == ("ready", {"threads": 1})


def test_without_a_configuration_there_is_nothing_to_write_to(tmp_path: Path, engine_binary: Path) -> None:
    cli = Cli(tmp_path, SUPERVISOR_LLAMA_SERVER=str(engine_binary))
    refused = cli("tune", "demo", "--write")
    assert (refused.code, "no configuration file" in refused.err) == (2, True)
    cli("stop")


def test_what_answers_at_a_url_names_no_file_of_this_machine(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "supervisor.yaml"
    file.write_text("models: {}\n")
    with FakeDaemon() as elsewhere:
        elsewhere.config["path"] = str(file)
        refused = cli("tune", "demo", "--write", "--url", elsewhere.url)
    assert (refused.code, "--write changes a file of the daemon's machine" in refused.err) == (2, True)
    assert file.read_text() == "models: {}\n"


def test_the_daemon_of_this_machine_may_be_named_by_its_url(cli: Cli, daemon: FakeDaemon) -> None:
    refused = cli("tune", "demo", "--write", "--url", daemon.url)
    assert "no configuration file" in refused.err
