"""A load that fails is tried otherwise: what a client and the status then see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from tests.support.daemon import RunningDaemon, running_daemon, scratch_home
from tests.support.scripted import ScriptedModel

pytestmark = pytest.mark.engine

HELLO = "Hello."
MOST = 200_000  # tokens that the engine below has memory for
MIB = 1 << 20

# The words of a lack of memory by llama.cpp's source; a real one cannot be had for certain
SHORT_OF_MEMORY = """#!/bin/sh
before=
for given; do
    if [ "$before" = --ctx-size ] && [ "$given" -gt {most} ]; then
        echo "0.1 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 268435456" >&2
        echo "0.1 E ggml_gallocr_reserve_n_impl: failed to allocate CPU buffer of size 268435456" >&2
        echo "0.1 E srv  llama_server: exiting due to model loading error" >&2
        exit 1
    fi
    before=$given
done
exec {engine} "$@"
"""


# As llama.cpp's kernels for AMX do with some types
CRASHES_REPACKED = """#!/bin/sh
for given; do
    case $given in --no-repack|--help|--version|--list-devices) exec {engine} "$@" ;; esac
done
kill -SEGV $$
"""


@pytest.fixture
def small(engine_binary: Path, tmp_path: Path) -> Path:
    """A llama-server that has no memory for large contexts."""
    wrapper = tmp_path / "bin" / "llama-server"
    wrapper.parent.mkdir()
    wrapper.write_text(SHORT_OF_MEMORY.format(most=MOST, engine=engine_binary))
    wrapper.chmod(0o755)
    return wrapper


@pytest.fixture
def large(scripted_model: ScriptedModel, tmp_path: Path) -> Path:
    """A model in a folder of its own, with a long native context."""
    model = tmp_path / "models" / "large.gguf"
    model.parent.mkdir()
    model.write_bytes(scripted_model(HELLO, n_ctx=262_144).read_bytes())
    return model


@pytest.fixture
def home() -> Iterator[Path]:
    with scratch_home() as folder:
        yield folder


def answer(daemon: RunningDaemon, model: str) -> str:
    found = daemon.chat(model, "Hi")
    assert found.status_code == 200, found.text
    text: str = found.json()["choices"][0]["message"]["content"]
    return text


def test_an_engine_that_crashes_is_started_once_more_then_without_repacked_weights(
    home: Path, engine_binary: Path, large: Path, tmp_path: Path
) -> None:
    wrapper = tmp_path / "llama-server"
    wrapper.write_text(CRASHES_REPACKED.format(engine=engine_binary))
    wrapper.chmod(0o755)
    models = {"large": {"file": str(large)}, "set": {"file": str(large), "repack": True}}
    with running_daemon(home, wrapper, {"models": models}) as daemon:
        assert answer(daemon, "large") == HELLO
        assert [step.split(":")[0] for step in daemon.model("large")["fallbacks"]] == ["The engine crashed"] * 2
        refused = daemon.chat("set", "Hi")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_crashed")


def test_memory_that_runs_out_is_planned_for_until_it_suffices(home: Path, small: Path, large: Path) -> None:
    settings = {"models": {"large": {"file": str(large), "parallel": 1}}, "context": {"target": 262_144}}
    with running_daemon(home, small, settings) as daemon:
        assert answer(daemon, "large") == HELLO
        status = daemon.model("large")
        assert 4096 <= status["n_ctx"] <= MOST
        assert status["error"] is None
        assert 1 <= len(status["fallbacks"]) <= 3
        assert all("Memory ran out" in step and "CPU" in step for step in status["fallbacks"])
        daemon.http.post("/api/v1/models/unload", json={"model": "large"})
        pids = {daemon.load("large")["pid"]}
        assert daemon.model("large")["state"] == "ready"
        assert pids == {daemon.model("large")["pid"]}


def test_a_context_that_was_asked_for_is_not_made_smaller(home: Path, small: Path, large: Path) -> None:
    settings = {"models": {"large": {"file": str(large), "parallel": 1, "ctx_size": 262_144}}}
    with running_daemon(home, small, settings) as daemon:
        refused = daemon.chat("large", "Hi")
        assert (refused.status_code, refused.json()["error"]["code"]) == (507, "does_not_fit")
        assert "Memory ran out" in refused.json()["error"]["message"]


def test_a_killed_engine_is_started_once_more_and_nothing_is_said_to_be_kept_free_that_is_not(
    engine_binary: Path, home: Path, large: Path, tmp_path: Path
) -> None:
    wrapper = tmp_path / "bin" / "llama-server"
    wrapper.parent.mkdir()
    once = f'case "$*" in *--host*) [ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; kill -9 $$; }};; esac'
    wrapper.write_text(f'#!/bin/sh\n{once}\nexec {engine_binary} "$@"\n')
    wrapper.chmod(0o755)
    settings = {"models": {"large": {"file": str(large), "parallel": 1, "ctx_size": 4096, "device": []}}}
    with running_daemon(home, wrapper, settings) as daemon:
        assert answer(daemon, "large") == HELLO
        assert daemon.model("large")["fallbacks"] == ["The engine was killed: started once more as it was."]


@pytest.mark.parametrize(("named", "status"), [(False, 200), (True, 503)])
def test_a_projector_that_fails_is_left_out_unless_it_was_named(
    engine_binary: Path, home: Path, large: Path, named: bool, status: int
) -> None:
    projector = large.with_name("mmproj-large.gguf")
    writer = gguf.GGUFWriter(projector, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_uint32("clip.vision.projection_dim", 128)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    given = {"mmproj": str(projector)} if named else {"mmproj_auto": True}
    settings = {"models": {"large": {"file": str(large), "parallel": 1, "ctx_size": 4096, **given}}}
    with running_daemon(home, engine_binary, settings) as daemon:
        found = daemon.chat("large", "Hi")
        assert found.status_code == status, found.text
        if named:
            assert found.json()["error"]["code"] == "projector_failed"
            assert "projector" in found.json()["error"]["message"]
            assert found.headers["x-should-retry"] == "false"
        else:
            assert daemon.model("large")["fallbacks"] == ["The projector could not be loaded: text only."]


@pytest.mark.parametrize("broken", ["garbage", "foreign"])
def test_a_draft_model_that_cannot_be_used_is_left_out(
    engine_binary: Path, home: Path, large: Path, broken: str
) -> None:
    draft = large.with_name("draft.gguf")
    draft.write_bytes(
        b"GGUF" + b"\xff" * 4096 if broken == "garbage" else large.read_bytes().replace(b"llama", b"lhasa")
    )
    options = {"parallel": 1, "ctx_size": 4096, "spec_draft_model": str(draft), "spec_type": ["draft-simple"]}
    with running_daemon(home, engine_binary, {"models": {"large": {"file": str(large), **options}}}) as daemon:
        assert answer(daemon, "large") == HELLO
        assert daemon.model("large")["fallbacks"] == ["The draft model could not be used: without it."]
