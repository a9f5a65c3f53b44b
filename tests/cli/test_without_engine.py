"""Commands on a machine that has no llama-server."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_the_doctor_says_how_to_get_one(tmp_path: Path) -> None:
    found = Cli(tmp_path, PATH=str(tmp_path))("doctor", "--json")
    assert found.code == 1, found.err
    [engine] = [one for one in found.json()["checks"] if one["name"] == "engine"]
    assert engine["state"] == "fail"
    assert "engine install" in engine["fix"]
    devices = [one["name"] for one in found.json()["checks"] if one["name"].startswith("devices ")]
    assert devices == [], "that there is no engine is said once"
