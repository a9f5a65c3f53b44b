"""A model larger than the memory that engines may use: refused with a way out, and with it on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.evidence.subjects import write_subject
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

MIB = 1 << 20
LIMIT_MIB = 70  # of the host's memory, for all engines; the model's weights alone are larger
SMALL = {"ctx_size": 512, "parallel": 1, "batch_size": 64, "ubatch_size": 64}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_subject("llama/wide", tmp_path_factory.mktemp("models"))
    assert path.stat().st_size > LIMIT_MIB * MIB
    return path


@pytest.fixture(scope="module")
def narrow(engine_binary: Path) -> Iterator[RunningDaemon]:
    """A daemon whose engines may use little of the host."""
    settings = {"devices": {"limit_mib": {"cpu": LIMIT_MIB}}, "memory_watch": {"share": 0.1}}
    with scratch_home() as home, running_daemon(home, engine_binary, settings) as daemon:
        yield daemon


def load(daemon: RunningDaemon, target: Path, **options: Any) -> dict[str, Any]:
    body = {"target": str(target), "options": {**SMALL, **options}}
    answer = daemon.http.post("/api/v1/models/load", json=body, timeout=PATIENCE)
    found: dict[str, Any] = {"status": answer.status_code, **answer.json()}
    return found


def test_without_it_the_refusal_names_the_way_out(narrow: RunningDaemon, large: Path) -> None:
    refused = load(narrow, large)
    assert (refused["status"], refused["error"]["code"]) == (507, "does_not_fit")
    assert "overcommit: mmap" in refused["error"]["message"]


def test_with_it_the_engine_maps_its_weights_and_serves(narrow: RunningDaemon, large: Path) -> None:
    plan = narrow.http.post("/api/v1/plan", json={"target": str(large), "options": {**SMALL, "overcommit": "mmap"}})
    assert plan.json()["fits"], plan.text
    assert any("mapped" in reason for reason in plan.json()["why"])
    status = load(narrow, large, overcommit="mmap")
    assert (status["status"], status["state"]) == (200, "ready"), status
    engine = psutil.Process(status["pid"])
    arguments = engine.cmdline()
    assert arguments[arguments.index("--load-mode") + 1] == "mmap"
    assert any(region.path == str(large) for region in engine.memory_maps())
    narrow.http.post("/api/v1/models/unload", json={"model": status["id"]})
