"""Every kind of wrong file by every way in: the same cause has the same code, wherever it is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.daemon import RunningDaemon, environment, running_daemon, scratch_home
from tests.support.gguf_bytes import STRING, header, model, pair, tensor
from tests.support.hub import LocalHub, local_hub
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine

LLAMA = [
    pair("general.architecture", STRING, "llama"),
    *(pair(f"llama.{key}", 4, 64) for key in ("context_length", "embedding_length", "feed_forward_length")),
    *(pair(f"llama.{key}", 4, 1) for key in ("block_count", "attention.head_count")),
]
CLIP = pair("general.architecture", STRING, "clip")
WITHOUT_CONTEXT = [one for one in LLAMA if b"context_length" not in one]
WEIGHTS = tensor("token_embd.weight", [64, 64], 0, 0)


@dataclass(frozen=True)
class Wrong:
    """A wrong file: its bytes, its code, its status, and whether a folder of models shows it as a model."""

    data: bytes
    code: str
    status: int = 422
    listed: bool = True


KINDS = {
    "garbage": Wrong(b"<html>not found</html>" * 50, "gguf_invalid", listed=False),
    "empty": Wrong(b"", "gguf_invalid", listed=False),
    "half-a-header": Wrong(model(LLAMA, [WEIGHTS], 16384)[:100], "gguf_invalid"),
    "cut-off": Wrong(model(LLAMA, [WEIGHTS], 16384)[:-8000], "gguf_invalid"),
    "projector": Wrong(model([CLIP], [tensor("v.x", [64], 0, 0)], 256), "projector", listed=False),
    "vocabulary": Wrong(header(*LLAMA), "vocabulary_only"),
    "a-key-missing": Wrong(model(WITHOUT_CONTEXT, [WEIGHTS], 16384), "model_file_invalid"),
    "no-context": Wrong(model([*WITHOUT_CONTEXT, pair("llama.context_length", 4, 0)], [WEIGHTS], 16384), "no_context"),
    "incomplete": Wrong(model(LLAMA, [WEIGHTS], 16384), "model_file_broken", 503),
}


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    with local_hub() as server:
        for name, wrong in KINDS.items():
            server.add(f"wrong/{name}", {f"{name}-Q4_0.gguf": wrong.data})
        yield server


@pytest.fixture(scope="module")
def daemon(engine_binary: Path, hub: LocalHub) -> Iterator[RunningDaemon]:
    with scratch_home() as home:
        (home / "shelf").mkdir()
        (home / "files").mkdir()
        for name, wrong in KINDS.items():
            (home / "files" / f"{name}.gguf").write_bytes(wrong.data)
            (home / "shelf" / f"on-shelf-{name}.gguf").write_bytes(wrong.data)
        models = {f"set-{name}": {"file": f"files/{name}.gguf"} for name in KINDS}
        settings = {"models": models, "models_dir": "shelf"}
        with running_daemon(home, engine_binary, settings, env=hub.environment(home / "hf")) as running:
            yield running


Way = Callable[[str], str]
TARGETS: dict[str, Way] = {
    "configured": lambda name: f"set-{name}",
    "models_dir": lambda name: f"on-shelf-{name}",
    "hub": lambda name: f"wrong/{name}:Q4_0",
}


def target(daemon: RunningDaemon, way: str, name: str) -> str:
    return str(daemon.home / "files" / f"{name}.gguf") if way == "path" else TARGETS[way](name)


def expected(way: str, wrong: Wrong) -> tuple[int, str]:
    return (404, "model_not_found") if way == "models_dir" and not wrong.listed else (wrong.status, wrong.code)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("way", ["path", *TARGETS])
def test_a_load(way: str, name: str, daemon: RunningDaemon) -> None:
    for more in ({}, {"options": {"ctx_size": 32}}):
        answer = daemon.http.post("/api/v1/models/load", json={"target": target(daemon, way, name), **more})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == expected(way, KINDS[name]), error


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("way", ["path", *TARGETS])
def test_a_plan_and_an_estimate(way: str, name: str, daemon: RunningDaemon) -> None:
    """What only the engine notices they cannot tell."""
    wrong = KINDS[name]
    for path in ("/api/v1/plan", "/api/v1/estimate"):
        answer = daemon.http.post(path, json={"target": target(daemon, way, name)})
        if wrong.code == "model_file_broken":
            assert answer.status_code == 200
        else:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == expected(way, wrong), (path, error)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("way", ["configured", "models_dir"])
def test_a_request(way: str, name: str, daemon: RunningDaemon) -> None:
    answer = daemon.chat(target(daemon, way, name), "Hello?")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == expected(way, KINDS[name]), error


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("way", ["path", pytest.param("hub", marks=pytest.mark.full)])
def test_the_command_line(way: str, name: str, daemon: RunningDaemon, engine_binary: Path, hub: LocalHub) -> None:
    """`inspect` shows whatever has a header; the rest says what a load would."""
    wrong = KINDS[name]
    env = environment(daemon.home, engine_binary, **hub.environment(daemon.home / "hf"))
    told = wrong.status == 422
    verbs = {
        "inspect": wrong.code in {"gguf_invalid", "model_file_invalid"},
        "estimate": told,
        "plan": told,
        "load": True,
    }
    for verb, fails in verbs.items():
        argv = [sys.executable, "-P", "-m", "supervisor", verb, target(daemon, way, name), "--json"]
        done = subprocess.run(argv, env=env, cwd=daemon.home, capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode != 0) == fails, (verb, done.stdout, done.stderr)
        if fails:
            assert json.loads(done.stdout or done.stderr)["error"]["code"] == wrong.code, verb


def test_a_split_model_that_is_not_whole(daemon: RunningDaemon, hub: LocalHub) -> None:
    first = daemon.home / "files" / "parts-00001-of-00002.gguf"
    first.write_bytes(model(LLAMA, [WEIGHTS], 16384))
    hub.add("wrong/parts", {first.name: first.read_bytes()})
    for place in (str(first), "wrong/parts"):
        for path in ("/api/v1/models/load", "/api/v1/plan", "/api/v1/estimate"):
            answer = daemon.http.post(path, json={"target": place})
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "shard_missing"), (place, path)


@pytest.mark.parametrize(
    "path", ["/" + "a" * 300, "/" + "a" * 300 + ".gguf", "/a\0b.gguf"], ids=["long", "gguf", "nul"]
)
def test_a_name_that_no_file_can_have(path: str, daemon: RunningDaemon) -> None:
    for call in ("models/load", "plan", "estimate"):
        answer = daemon.http.post(f"/api/v1/{call}", json={"target": path})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "model_file_invalid"), call


@pytest.mark.parametrize("path", ["/" + "a" * 300, "/a\\u0000b", "/\\ud800"], ids=["long", "nul", "half a pair"])
def test_a_projector_that_no_file_can_be(path: str, daemon: RunningDaemon) -> None:
    body = f'{{"target": "demo", "options": {{"mmproj": "{path}"}}}}'
    answer = daemon.http.post("/api/v1/estimate", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "model_file_invalid")


def test_numbers_that_json_does_not_have(daemon: RunningDaemon) -> None:
    body = '{"target": "demo", "options": {"chat_template_kwargs": {"a": 1e999}}}'
    for call in ("models/load", "plan"):
        answer = daemon.http.post(f"/api/v1/{call}", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), call
