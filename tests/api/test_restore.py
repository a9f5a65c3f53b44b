"""What was loaded is loaded again by the next daemon, and conversations survive it."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.learn.identity import model_identity
from supervisor.files.model_file import open_model
from supervisor.store import Database, LoadedModels
from supervisor.system.paths import places
from tests.support.daemon import RunningDaemon, environment, running_daemon, scratch_home, start_daemon, wait_until
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

LONG = "word " * 100


def ready(daemon: RunningDaemon, model: str) -> bool:
    found = daemon.http.get("/api/v1/models").json()["models"]
    return any(one["id"] == model and one["state"] == "ready" for one in found)


def known(home: Path, engine: Path) -> list[str]:
    """What the database says that is loaded."""
    with Database.read(places(environment(home, engine)).database) as database:
        return [model.id for model in LoadedModels(database).all()]


def prompt_tokens(daemon: RunningDaemon, model: str) -> int:
    """Tokens of a long prompt that were processed, and not known already."""
    usage = daemon.chat(model, LONG, max_tokens=4).json()["usage"]
    return int(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_what_was_loaded_is_loaded_again(
    engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path, end: signal.Signals
) -> None:
    configured, loose, gone = scripted_model("One."), tmp_path / "loose.gguf", scripted_model("Two.")
    loose.write_bytes(scripted_model("Three.").read_bytes())
    settings: dict[str, Any] = {
        "restore": True,
        "models": {
            "configured": {"file": str(configured), "parallel": 1, "ctx_size": 4096},
            "gone": {"file": str(gone), "parallel": 1, "ctx_size": 4096},
        },
    }
    with scratch_home() as home:
        first = start_daemon(home, engine_binary, settings)
        with first.http:
            first.load("configured")
            first.load(str(loose), parallel=2, ctx_size=2048)
            first.load("gone")
            assert first.http.post("/api/v1/models/unload", json={"model": "gone"}).status_code == 200
            wait_until(lambda: known(home, engine_binary) == ["configured", "loose"], "it is written down")
            first.process.send_signal(end)
            first.process.wait(PATIENCE)
        with running_daemon(home, engine_binary, settings) as second:
            for model in ("configured", "loose"):
                wait_until(partial(ready, second, model), f"{model} is ready")
            assert second.model("loose")["n_slots"] == 2
            assert second.model("gone")["state"] == "unloaded"
        with running_daemon(home, engine_binary, settings | {"restore": False}) as third:
            assert third.model("configured")["state"] == "unloaded"


def test_a_conversation_survives_an_unload_and_a_new_daemon(engine_binary: Path, scripted_model: ScriptedModel) -> None:
    model = {"file": str(scripted_model("One.")), "parallel": 2, "ctx_size": 8192, "keep_kv": True}
    with scratch_home() as home:
        with running_daemon(home, engine_binary, {"models": {"m": model}}) as daemon:
            assert prompt_tokens(daemon, "m") > 400
            daemon.http.post("/api/v1/models/unload", json={"model": "m"})
            assert prompt_tokens(daemon, "m") <= 1
        with running_daemon(home, engine_binary, {"models": {"m": model}}) as daemon:
            assert prompt_tokens(daemon, "m") <= 1


def test_a_model_never_takes_up_the_conversations_of_another_of_its_name_and_shape(
    engine_binary: Path, scripted_model: ScriptedModel
) -> None:
    one, other = scripted_model("One."), scripted_model("Two.")
    assert model_identity(open_model(one).header) == model_identity(open_model(other).header)
    options = {"parallel": 2, "ctx_size": 8192, "keep_kv": True}
    models = {"one": {"file": str(one), **options}, "other": {"file": str(other), **options}}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": models}) as daemon:
        assert prompt_tokens(daemon, "one") > 400
        daemon.http.post("/api/v1/models/unload", json={"model": "one"})
        assert prompt_tokens(daemon, "other") > 400


def test_a_folder_of_its_own_and_one_that_was_named_do_not_go_together(
    engine_binary: Path, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    model = {"file": str(scripted_model("One.")), "keep_kv": True, "slot_save_path": str(tmp_path)}
    with scratch_home() as home, running_daemon(home, engine_binary, {"models": {"m": model}}) as daemon:
        error = daemon.chat("m", "Hi").json()["error"]
        assert (error["code"], "slot_save_path" in error["message"]) == ("launch_option_refused", True)
