"""The abilities of models, in the status and in OpenAI's list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home

pytestmark = pytest.mark.engine

SWITCHED = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}<think>{% endif %}"


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    own = {"file": str(talker), "ctx_size": 8192, "parallel": 2, "kv_unified": False}
    models = {"own": own, "named": {**own, "chat_template": "chatml"}, "written": {**own, "chat_template": SWITCHED}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as running:
        yield running


def abilities(daemon: RunningDaemon, model: str) -> Any:
    """Those in the status, which are those in the list."""
    told = daemon.model(model)["abilities"]
    assert daemon.http.get(f"/v1/models/{model}").json()["abilities"] == told
    return told


def test_abilities_are_told_once_the_file_was_read(daemon: RunningDaemon) -> None:
    assert abilities(daemon, "own") is None
    daemon.http.post("/api/v1/models/load", json={"target": "own"})
    told = abilities(daemon, "own")
    assert (told["inputs"], told["template"], told["tools"]) == (["text"], "model", True)
    assert (told["tool_dialect"], told["system_role"]) == ("hermes", True)
    contexts = told["contexts"]
    assert (contexts["native"], contexts["request"]) == (131072, 4096)
    assert contexts["fitting"] >= 4096
    daemon.http.post("/api/v1/models/unload", json={"model": "own"})
    after = abilities(daemon, "own")
    assert after["tools"] is True
    assert (after["contexts"]["native"], after["contexts"]["request"]) == (131072, None)


def test_a_configured_template_counts(daemon: RunningDaemon) -> None:
    for model in ("named", "written"):
        daemon.http.post("/api/v1/models/load", json={"target": model})
    named, written = abilities(daemon, "named"), abilities(daemon, "written")
    assert (named["template"], named["tools"]) == ("chatml", None)
    assert (written["template"], written["tools"], written["thinking"]) == ("configured", False, "enable_thinking")
