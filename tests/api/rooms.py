"""A daemon with room for some of its models."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.daemon import RunningDaemon


def write(daemon: RunningDaemon, settings: dict[str, Any]) -> None:
    """In place of the configuration, at once."""
    new = daemon.home / "new.yaml"
    new.write_text(yaml.safe_dump(settings))
    new.replace(daemon.home / "test.yaml")


def make_room(daemon: RunningDaemon, settings: dict[str, Any], target: str, count: int) -> None:
    """From now on there is room for so many engines like this model's."""
    (part,) = daemon.http.post("/api/v1/plan", json={"target": target}).json()["parts"]
    held = part["total_bytes"] - part["reserve_bytes"]
    limit = held * (count + 0.5) + part["reserve_bytes"]
    settings["devices"] = {"limit_mib": {"cpu": int(limit) >> 20}}
    write(daemon, settings)
    assert daemon.http.post("/api/v1/config/reload").status_code == 200
