"""Models that a load added: forgotten when they never come up, and by command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.errors import ModelNotFound
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.gguf_bytes import STRING, model, pair, tensor


@pytest.fixture
def daemon(engine_binary: Path, talker: Path) -> Iterator[RunningDaemon]:
    models = {"kept": {"file": str(talker), "ctx_size": 4096}, "broken": {"file": "broken.gguf"}}
    with scratch_home() as home:
        odd(home / "broken.gguf")
        (home / "shelf").mkdir()
        (home / "shelf" / "shelved.gguf").symlink_to(talker)
        with running_daemon(home, engine_binary, {"models": models, "models_dir": "shelf"}) as running:
            yield running


def odd(path: Path) -> Path:
    """A file that is well-formed, and that the engine refuses: it lacks nearly all of a model."""
    pairs = [pair("general.architecture", STRING, "llama"), pair("llama.context_length", 4, 64),
             pair("llama.block_count", 4, 1), pair("llama.embedding_length", 4, 32)]  # fmt: skip
    path.write_bytes(model(pairs, [tensor("token_embd.weight", [32, 32], 0, 0)], 4096))
    return path


def listed(daemon: RunningDaemon) -> set[str]:
    return {one["id"] for one in daemon.http.get("/api/v1/models").json()["models"]}


def ids(daemon: RunningDaemon) -> set[str]:
    found = listed(daemon)
    assert {one["id"] for one in daemon.http.get("/v1/models").json()["data"]} == found
    return found


CONFIGURED = {"kept", "broken", "shelved", "demo"}


@pytest.mark.engine
@pytest.mark.parametrize("how", ["wait", "at once", "stream"])
def test_a_load_by_path_that_fails_leaves_no_model(how: str, daemon: RunningDaemon) -> None:
    path = odd(daemon.home / "odd.gguf")
    body = {"target": str(path), "wait": how == "wait"}
    if how == "stream":
        events = {"accept": "text/event-stream"}
        with daemon.http.stream("POST", "/api/v1/models/load", json=body, headers=events) as stream:
            told = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data:")]
        assert told[-1]["state"] == "failed"
        assert told[-1]["error"]["code"] == "model_file_broken"
    else:
        answer = daemon.http.post("/api/v1/models/load", json=body)
        assert answer.status_code in {202, 503}
    wait_until(lambda: listed(daemon) == CONFIGURED, "it is forgotten")
    assert ids(daemon) == CONFIGURED
    refused = daemon.chat("odd", "Hello?")
    assert refused.status_code == 404
    assert "it could not be loaded, and was forgotten" in refused.json()["error"]["message"]
    assert "loading" in daemon.http.get("/api/v1/logs", params={"model": "odd", "lines": 500}).text


@pytest.mark.engine
def test_what_was_loaded_or_is_configured_stays(daemon: RunningDaemon, talker: Path) -> None:
    assert daemon.http.post("/api/v1/models/load", json={"target": "broken"}).status_code != 200
    loaded = daemon.load(str(copy(talker, daemon.home)), ctx_size=4096)
    daemon.http.post("/api/v1/models/unload", json={"model": loaded["id"]})
    Path(loaded["path"]).write_bytes(b"GGUF")
    assert daemon.http.post("/api/v1/models/load", json={"target": loaded["id"]}).status_code != 200
    assert ids(daemon) == CONFIGURED | {loaded["id"]}


@pytest.mark.engine
def test_forget_by_command(daemon: RunningDaemon, talker: Path) -> None:
    path = copy(talker, daemon.home)
    daemon.load(str(path), ctx_size=4096)
    busy = daemon.http.post("/api/v1/models/forget", json={"model": "copied"})
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "model_in_use")
    daemon.http.post("/api/v1/models/unload", json={"model": "copied"})
    daemon.http.post("/api/v1/models/pin", json={"model": "copied"})
    assert daemon.http.post("/api/v1/models/forget", json={"model": "copied"}).json()["id"] == "copied"
    assert ids(daemon) == CONFIGURED
    assert path.exists()
    for name in sorted(CONFIGURED):
        refused = daemon.http.post("/api/v1/models/forget", json={"model": name})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model"), name
    gone = daemon.http.post("/api/v1/models/forget", json={"model": "copied"})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
    assert daemon.load(str(path), ctx_size=4096)["pinned"] is False


def copy(talker: Path, home: Path) -> Path:
    path = home / "copied.gguf"
    path.write_bytes(talker.read_bytes())
    return path


def test_why_a_model_is_not_here_any_more_is_told_for_a_while() -> None:
    registry = Registry()
    dropped = []
    for number in range(70):
        registry.add(ModelEntry(f"m{number}", Source.FILE, f"/m{number}"))
        dropped.append(registry.forget(f"m{number}", "because."))
    assert [one for one in dropped if one] == [f"m{number}" for number in range(6)]
    with pytest.raises(ModelNotFound, match="'m69' any more: because"):
        registry.find("m69")
    with pytest.raises(ModelNotFound) as told:
        registry.find("m0")
    assert "because" not in told.value.message
    registry.add(ModelEntry("m69", Source.FILE, "/m69"))
    registry.forget("m69")
    with pytest.raises(ModelNotFound) as told:
        registry.find("m69")
    assert "because" not in told.value.message
