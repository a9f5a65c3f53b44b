"""Which models the next daemon loads again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.launch import LaunchOptions
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.planning.learning import Learning
from supervisor.service.restore import Remembered
from supervisor.store import Database, LoadedModel, LoadedModels
from tests.support.gguf_bytes import header, pair


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[Learning]:
    learning = Learning(Database.open(tmp_path / "state.db"), lambda: 0.0)
    yield learning
    learning.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(pair("general.architecture", 8, "llama")) + bytes(100))
    return path


def entry(path: Path, **options: Any) -> ModelEntry:
    return ModelEntry("m", Source.FILE, str(path), replace(LaunchOptions(), **options))


def begun(learning: Learning, registry: Registry, *, restore: bool = True) -> list[str]:
    learning.flush()
    found = Remembered(learning, registry).begin(restore=restore)
    learning.flush()
    return found


def test_a_model_loaded_by_path_comes_back_with_its_options(learning: Learning, model: Path) -> None:
    options = LaunchOptions(
        ctx_size=2048, device=("CUDA0",), chat_template_kwargs={"thinking": True}, keep_kv=True, parallel=None
    )
    given = entry(model, parallel=4).loaded_with(options)
    Remembered(learning, Registry((given,))).ready("m")
    fresh = Registry()
    assert begun(learning, fresh) == ["m"]
    assert fresh.find("m").options == given.options
    assert fresh.find("m").own_options == LaunchOptions()
    assert begun(learning, Registry()) == ["m"], "it stays until it is unloaded"


def test_a_configured_model_is_loaded_as_it_is_configured_now(learning: Learning, model: Path) -> None:
    Remembered(learning, Registry((entry(model, ctx_size=2048),))).ready("m")
    now = Registry((entry(model, ctx_size=4096),))
    assert begun(learning, now) == ["m"]
    assert now.find("m").options.ctx_size == 4096


def test_a_configured_model_has_what_it_was_given_over_what_is_configured_now(learning: Learning, model: Path) -> None:
    before = entry(model, ctx_size=2048, parallel=4).loaded_with(LaunchOptions(ctx_size=1024))
    Remembered(learning, Registry((before,))).ready("m")
    now = Registry((entry(model, ctx_size=4096, parallel=8, threads=2),))
    assert begun(learning, now) == ["m"]
    assert now.find("m").options == LaunchOptions(ctx_size=1024, threads=2)
    assert now.find("m").own_options == LaunchOptions(ctx_size=4096, parallel=8, threads=2)


def test_what_was_unloaded_is_not_but_what_the_shutdown_ended_is(learning: Learning, model: Path) -> None:
    remembered = Remembered(learning, Registry((entry(model),)))
    remembered.ready("m")
    remembered.close()
    remembered.gone("m")
    assert begun(learning, Registry()) == ["m"]
    Remembered(learning, Registry()).gone("m")
    assert begun(learning, Registry()) == []


def test_a_model_that_is_no_more_is_forgotten(learning: Learning, model: Path) -> None:
    Remembered(learning, Registry((entry(model),))).ready("m")
    kept = model.rename(model.with_name("elsewhere.gguf"))
    assert begun(learning, Registry()) == []
    kept.rename(model)
    assert begun(learning, Registry()) == []


@pytest.mark.parametrize(
    ("name", "path", "options"),
    [
        ("m", None, {"env": {"LD_PRELOAD": "/x.so"}}),
        ("m", None, {"lora": [{"path": "/x"}]}),
        ("m", None, {"ctx_size": float("inf")}),
        ("m\n", None, {}),
        ("m\0", None, {}),
        ("m", "/dev/zero", {}),
        ("m", "/\0", {}),
        ("m", f"/{'x' * 5000}", {}),
        ("m", "https://127.0.0.1/m.gguf", {}),
    ],
)
def test_what_no_load_could_have_asked_for_is_forgotten(
    learning: Learning, model: Path, name: str, path: str | None, options: dict[str, object]
) -> None:
    """A database may be damaged, or another program's: nothing in it is believed unseen."""
    LoadedModels(learning.database).add(LoadedModel(name, path or str(model), options, 1.0))
    assert begun(learning, Registry()) == []
    assert LoadedModels(learning.database).all() == ()


def test_a_daemon_that_restores_nothing_begins_anew(learning: Learning, model: Path) -> None:
    Remembered(learning, Registry((entry(model),))).ready("m")
    assert begun(learning, Registry(), restore=False) == []
    assert begun(learning, Registry()) == []
