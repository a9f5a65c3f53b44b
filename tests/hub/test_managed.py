"""What the daemon does around models of the hub: hints, restoring, sizes, events, what is unfinished on disk."""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from supervisor.core.gguf import TENSOR_TYPES
from supervisor.demo.maker import write_scripted_gguf
from tests.api.conftest import SCRIPT
from tests.api.test_restore import known
from tests.hub.conftest import SAID
from tests.hub.test_choosing import KINDS, LAYER, llama_8b, publish
from tests.hub.test_stores import ollama
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, start_daemon, wait_until
from tests.support.hub import Fault, LocalHub
from tests.support.patience import PATIENCE
from tests.support.projector import PATCH, SIDE, write_projector

pytestmark = pytest.mark.engine

PADDING = bytes(4 << 20)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress((b"\0" + bytes(3 * SIDE)) * SIDE))
    + chunk(b"IEND", b"")
)
"""A black picture."""


@pytest.fixture
def home() -> Iterator[Path]:
    with scratch_home() as folder:
        yield folder


@pytest.fixture
def daemon(home: Path, engine_binary: Path, hub: LocalHub) -> Iterator[RunningDaemon]:
    with running_daemon(home, engine_binary, env=hub.environment(home / "hf")) as running:
        yield running


def post(daemon: RunningDaemon, path: str, **body: Any) -> httpx.Response:
    return daemon.http.post(path, json=body)


def far_too_large() -> tuple[bytes, int]:
    """The beginning of a model of three times this machine's memory, and its size."""
    layer = sum(rows * columns for rows, columns in LAYER.values())
    layers = 3 * psutil.virtual_memory().total / TENSOR_TYPES[KINDS["BF16"]].bytes_for(layer)
    return llama_8b(KINDS["BF16"], int(layers))


def unfinished(daemon: RunningDaemon) -> list[dict[str, Any]]:
    found = daemon.http.get("/api/v1/disk").json()["models"]
    return [one for one in found if one["problem"]]


def ready(daemon: RunningDaemon, model: str) -> bool:
    found = daemon.http.get("/api/v1/models").json()["models"]
    return any(one["id"] == model and one["state"] == "ready" for one in found)


def load_events(daemon: RunningDaemon, target: str) -> Iterator[dict[str, Any]]:
    """The statuses that a load tells, to its end."""
    asked = {"json": {"target": target}, "headers": {"Accept": "text/event-stream"}}
    with daemon.http.stream("POST", "/api/v1/models/load", **asked) as heard:  # type: ignore[arg-type]  # as httpx has them
        for line in heard.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line[5:])


def test_what_does_not_fit_is_told_which_quant_of_the_repository_would(daemon: RunningDaemon, hub: LocalHub) -> None:
    host = daemon.http.get("/api/v1/devices").json()["host"]
    layer = sum(rows * columns for rows, columns in LAYER.values())
    layers = int(1.5 * host["total_bytes"] / TENSOR_TYPES[KINDS["BF16"]].bytes_for(layer))
    publish(hub, layers)
    plans = {quant: post(daemon, "/api/v1/plan", target=f"a/llama:{quant}").json() for quant in KINDS}
    assert not plans["BF16"]["fits"], plans["BF16"]
    best = next((quant for quant in KINDS if plans[quant]["fits"]), None)
    hints = [hint for hint in plans["BF16"]["hints"] if "a/llama" in hint]
    assert (hints[0].startswith(f"a/llama:{best} (") and "would fit" in hints[0]) if best else not hints
    told = list(load_events(daemon, "a/llama:BF16"))
    assert told[-1]["state"] == "failed", "the hub has its beginning only"
    note = told[0]["note"]
    assert hints[0] in note if best else note


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_model_of_the_hub_comes_back_by_its_reference(
    end: signal.Signals, home: Path, engine_binary: Path, hub: LocalHub, talker: Path
) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    env = hub.environment(home / "hf")
    first = start_daemon(home, engine_binary, {"restore": True}, env=env)
    with first.http:
        loaded = first.load("a/b", ctx_size=4096, parallel=1)
        wait_until(lambda: known(home, engine_binary) == ["a/b:Q4_0"], "it is written down")
        first.process.send_signal(end)
        first.process.wait(PATIENCE)
    moved = home / "elsewhere"
    (home / "hf").rename(moved)
    with running_daemon(home, engine_binary, {"restore": True}, env=hub.environment(moved)) as second:
        wait_until(partial(ready, second, "a/b:Q4_0"), "it is ready")
        shown = second.model("a/b:Q4_0")
        assert (shown["hub"], shown["source"], shown["aliases"]) == ("a/b:Q4_0", "hub", ["a/b"])
        assert (shown["n_ctx"], shown["n_slots"]) == (4096, 1)
        assert shown["path"] != loaded["path"]
        assert second.chat("a/b", "Hello?").json()["choices"][0]["message"]["content"] == SAID


def test_defaults_count_for_models_of_the_hub(home: Path, engine_binary: Path, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    settings = {"defaults": {"parallel": 2, "ctx_size": 8192}}
    with running_daemon(home, engine_binary, settings, env=hub.environment(home / "hf")) as daemon:
        shown = daemon.load("a/b:q4_0")
        assert (shown["n_slots"], shown["n_ctx"]) == (2, 4096)


def test_a_reload_that_changes_nothing_leaves_models_of_the_hub_alone(
    home: Path, engine_binary: Path, hub: LocalHub, talker: Path
) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    settings: dict[str, Any] = {"server": {"watch_config": False}, "models": {"mine": {"source": "a/b:Q4_0"}}}
    with running_daemon(home, engine_binary, settings, env=hub.environment(home / "hf")) as daemon:
        before = daemon.load("mine")
        changes = post(daemon, "/api/v1/config/reload").json()
        assert changes["relaunched"] == changes["adjusted"] == []
        assert daemon.model("mine")["pid"] == before["pid"]
        settings["models"]["mine"]["source"] = "a/b:Q8_0"
        settings["hub"] = {"timeout": 3.0}
        (home / "test.yaml").write_text(yaml.safe_dump(settings))
        changes = post(daemon, "/api/v1/config/reload").json()
        assert changes["relaunched"] == ["mine"]
        assert changes["restart_needed"] == ["hub.timeout"]


def test_a_hub_that_says_nothing_keeps_nobody_else_waiting(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    daemon.load("a/b:Q4_0")
    post(daemon, "/api/v1/models/unload", model="a/b:Q4_0")
    hold = hub.spoil(Fault("/api/models/", hold=threading.Event())).hold
    assert hold is not None

    def load(number: int) -> int:
        with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as http:
            return http.post("/api/v1/models/load", json={"target": f"a/none{number}:Q4_0"}).status_code

    with ThreadPoolExecutor(24) as crowd:
        loads = [crowd.submit(load, number) for number in range(24)]
        wait_until(lambda: hub.held >= 8, "loads that take every thread that asks the hub")
        for path in ("/api/v1/status", "/api/v1/devices"):
            assert daemon.http.get(path).status_code == 200
        assert daemon.load("a/b:Q4_0")["state"] == "ready", "what is on disk"
        assert not any(one.done() for one in loads)
        hold.set()
        assert {one.result() for one in loads} <= {404, 502, 503}


@pytest.mark.parametrize(
    ("path", "name", "accept"),
    [
        ("/api/v1/plan", "target", "*/*"),
        ("/api/v1/estimate", "target", "*/*"),
        ("/api/v1/models", "model", "text/event-stream"),
        ("/api/pull", "model", "*/*"),
    ],
)
def test_the_hub_is_asked_nothing_for_who_has_left(
    daemon: RunningDaemon, hub: LocalHub, path: str, name: str, accept: str
) -> None:
    hold = hub.spoil(Fault("/api/models/", hold=threading.Event())).hold
    assert hold is not None
    address = httpx.URL(daemon.url)
    clients = [HTTPConnection(address.host, address.port, timeout=PATIENCE) for _ in range(40)]
    for number, client in enumerate(clients):
        headers = {"Content-Type": "application/json", "Accept": accept}
        client.request("POST", path, json.dumps({name: f"a/left{number}:Q4_0"}), headers)
    ports = {client.sock.getsockname()[1] for client in clients}
    wait_until(lambda: hub.held >= 4, "questions to the hub")
    for client in clients:
        client.close()
    ours = psutil.Process(daemon.pid)
    wait_until(lambda: not ports & {one.raddr.port for one in ours.net_connections() if one.raddr}, "all have left")
    assert daemon.http.get("/health").status_code == 200
    hold.set()
    assert post(daemon, "/api/v1/plan", target="a/stays:Q4_0").status_code == 404
    asked = {one.path.split("/")[4].split("?")[0] for one in hub.seen if one.path.startswith("/api/models/")}
    assert "stays" in asked
    assert len(asked) <= 10, "those whose turn had come, and the one that stays"


def test_who_does_not_wait_is_answered_before_the_header_is_read(
    daemon: RunningDaemon, hub: LocalHub, talker: Path
) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker})
    hold = hub.spoil(Fault("/storage/", method="GET", hold=threading.Event())).hold
    assert hold is not None
    answer = daemon.http.post("/api/v1/models/load", json={"target": "a/b:Q4_0", "wait": False}, timeout=5)
    assert answer.status_code == 202
    assert answer.json()["id"] == "a/b:Q4_0"
    hold.set()
    wait_until(partial(ready, daemon, "a/b:Q4_0"), "it is ready")


def test_events_tell_of_a_download_at_most_twenty_times_a_second(
    daemon: RunningDaemon, hub: LocalHub, talker: Path
) -> None:
    files = {f"m-Q4_0-{part:05d}-of-00003.gguf": bytes([part]) * (1 << 20) for part in (1, 2, 3)}
    hub.add("a/b", files)
    hub.spoil(Fault("/storage/", method="GET", rate=1.5e6))
    answer = post(daemon, "/api/v1/models/load", target="a/b:Q4_0", wait=False)
    assert answer.status_code == 202
    told: list[dict[str, Any]] = []
    began = time.monotonic()
    with daemon.http.stream("GET", "/api/v1/events") as heard:
        for line in heard.iter_lines():
            if line.startswith("data:") and "models" not in (shown := json.loads(line[5:])):
                told.append(shown)
                if shown.keys() == {"id"} or shown.get("state") in {"failed", "backoff", "unloaded"}:
                    break  # its file is no model, so that it is forgotten
    downloads = [shown["download"] for shown in told if shown.get("download")]
    assert len(downloads) >= 5
    done = [one["done_bytes"] for one in downloads]
    assert done == sorted(done)
    assert any(one["bytes_per_second"] and one["eta_seconds"] is not None for one in downloads)
    assert len(told) <= 20 * (time.monotonic() - began) + 2


def test_what_is_unfinished_is_shown_and_removed_by_name(daemon: RunningDaemon, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker.read_bytes() + PADDING, "m-Q8_0.gguf": talker.read_bytes() + PADDING[1:]})
    hub.spoil(Fault("/storage/", method="GET", rate=8e5))
    for quant in ("Q4_0", "Q8_0"):
        headers = {"Accept": "text/event-stream"}
        body = {"model": f"a/b:{quant}"}
        with daemon.http.stream("POST", "/api/v1/models", json=body, headers=headers) as answer:
            for line in answer.iter_lines():
                if "downloading" in line and '"done_bytes": 0,' not in line:
                    assert "being downloaded" in str(unfinished(daemon))
                    break
        wait_until(lambda: "being downloaded" not in str(unfinished(daemon)), "it has ended")
    assert [one["name"] for one in sorted(unfinished(daemon), key=lambda one: one["name"])] == ["a/b:Q4_0", "a/b:Q8_0"]
    size = next(one["size_bytes"] for one in unfinished(daemon) if one["name"] == "a/b:Q4_0")
    removed = daemon.http.delete("/api/v1/models", params={"model": "a/b:q4_0"}).json()
    assert (removed["freed_bytes"], len(removed["files"])) == (size, 1)
    assert [one["name"] for one in unfinished(daemon)] == ["a/b:Q8_0"]
    assert daemon.http.delete("/api/v1/models", params={"model": "a/b"}).status_code == 200
    assert daemon.http.get("/api/v1/disk").json()["models"] == []
    assert daemon.http.delete("/api/v1/models", params={"model": "a/b"}).status_code == 404


def test_a_picture_is_seen_with_the_projector_of_the_repository(
    daemon: RunningDaemon, hub: LocalHub, talker: Path, tmp_path: Path
) -> None:
    projector = write_projector(tmp_path / "p.gguf", n_embd=128)
    hub.add("a/see", {"m-Q4_0.gguf": talker, "mmproj-F16.gguf": projector})
    assert daemon.load("a/see:Q4_0", ctx_size=4096)["state"] == "ready"
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(PNG).decode()}"}}
    question = {"role": "user", "content": [picture, {"type": "text", "text": "Hello?"}]}
    body = {"model": "a/see:Q4_0", "messages": [question], "max_tokens": 4}
    answer = post(daemon, "/v1/chat/completions", **body)
    assert answer.status_code == 200, answer.text
    without = post(daemon, "/v1/chat/completions", **{**body, "messages": [{"role": "user", "content": "Hello?"}]})
    more = answer.json()["usage"]["prompt_tokens"] - without.json()["usage"]["prompt_tokens"]
    assert more >= (SIDE // PATCH) ** 2, "the picture's patches are tokens"
    daemon.load("a/see:Q4_0", ctx_size=4096, mmproj_auto=False)
    assert post(daemon, "/v1/chat/completions", **body).status_code != 200


def test_a_configured_repository_takes_the_best_that_fits_and_stays_with_it(
    home: Path, engine_binary: Path, hub: LocalHub, talker: Path
) -> None:
    """The best quality is far too large here; nothing of it but its header is fetched."""
    large, size = far_too_large()
    repo = hub.add("a/b", {"m-BF16.gguf": large, "m-Q4_0.gguf": talker})
    repo.says_size["m-BF16.gguf"] = size
    settings = {"models": {"mine": {"source": "hf://a/b", "ctx_size": 4096}}}
    with running_daemon(home, engine_binary, settings, env=hub.environment(home / "hf")) as daemon:
        planned = post(daemon, "/api/v1/plan", target="mine").json()
        assert planned["fits"]
        assert daemon.chat("mine", "Hello?").json()["choices"][0]["message"]["content"] == SAID
        assert daemon.model("mine")["path"].endswith("m-Q4_0.gguf")
        asked = len(hub.requests("/api/models"))
        post(daemon, "/api/v1/models/unload", model="mine")
        assert daemon.load("mine")["path"].endswith("m-Q4_0.gguf")
        assert len(hub.requests("/api/models")) == asked, "what is chosen is on disk, nobody needs to be asked"


def test_a_configured_repository_takes_what_is_on_disk_before_it_downloads(
    home: Path, engine_binary: Path, hub: LocalHub, talker: Path
) -> None:
    """The better quality fits too, and would be chosen where nothing is on disk."""
    hub.add("a/b", {"m-Q4_0.gguf": talker, "m-Q8_0.gguf": talker.read_bytes() + bytes(32)})
    env = hub.environment(home / "hf")
    with running_daemon(home, engine_binary, env=env) as daemon:
        post(daemon, "/api/v1/models", model="a/b:Q4_0")
    settings = {"models": {"mine": {"source": "hf://a/b", "ctx_size": 4096}}}
    asked = len(hub.seen)
    with running_daemon(home, engine_binary, settings, env=env) as daemon:
        assert daemon.load("mine")["path"].endswith("m-Q4_0.gguf")
        assert len(hub.seen) == asked, "nobody needs to be asked"
        post(daemon, "/api/v1/models/unload", model="mine")
        assert daemon.http.delete("/api/v1/models", params={"model": "a/b"}).status_code == 200
    with running_daemon(home, engine_binary, settings, env=env) as daemon:
        assert daemon.load("mine")["path"].endswith("m-Q8_0.gguf")


def test_what_is_on_disk_and_does_not_fit_is_not_taken(
    home: Path, engine_binary: Path, hub: LocalHub, talker: Path
) -> None:
    data, size = far_too_large()
    repo = hub.add("a/b", {"m-BF16.gguf": data, "m-Q4_0.gguf": talker})
    repo.says_size["m-BF16.gguf"] = size
    there = home / "hf/hub/models--a--b/snapshots" / repo.refs["main"] / "m-BF16.gguf"
    there.parent.mkdir(parents=True)
    there.write_bytes(data)
    os.truncate(there, size)  # its weights are a hole
    settings = {"models": {"mine": {"source": "hf://a/b", "ctx_size": 4096}}}
    with running_daemon(home, engine_binary, settings, env=hub.environment(home / "hf")) as daemon:
        assert daemon.load("mine")["path"].endswith("m-Q4_0.gguf")


def test_a_model_of_ollama_is_loaded_by_its_name(home: Path, engine_binary: Path, hub: LocalHub, talker: Path) -> None:
    store = home / "ollama"
    ollama(store, "registry.ollama.ai/library/talker/latest", talker.read_bytes())
    before = sorted(store.rglob("*"))
    with running_daemon(
        home, engine_binary, env={**hub.environment(home / "hf"), "OLLAMA_MODELS": str(store)}
    ) as daemon:
        assert daemon.load("ollama:talker", ctx_size=4096)["id"] == "talker"
        assert daemon.load("ollama:talker:latest", ctx_size=4096)["pid"] == daemon.model("talker")["pid"]
        assert daemon.chat("talker", "Hello?").json()["choices"][0]["message"]["content"] == SAID
        missing = post(daemon, "/api/v1/models/load", target="ollama:other")
        assert (missing.status_code, "talker:latest" in missing.json()["error"]["message"]) == (404, True)
    assert sorted(store.rglob("*")) == before


@pytest.fixture
def gated(engine_binary: Path, home: Path) -> tuple[Path, Path]:
    """A llama-server that begins to load once a file is there, and that file."""
    gate, wrapper = home / "gate", home / "bin" / "llama-server"
    wrapper.parent.mkdir()
    lines = ["#!/bin/sh", 'case "$*" in', f"*--model*) while [ ! -e {gate} ]; do sleep 0.05; done;;", "esac"]
    wrapper.write_text("\n".join([*lines, f'exec {engine_binary} "$@"', ""]))
    wrapper.chmod(0o755)
    return wrapper, gate


def test_files_of_a_model_that_loads_or_drains_are_not_removed(
    home: Path, gated: tuple[Path, Path], hub: LocalHub, tmp_path: Path
) -> None:
    endless = tmp_path / "endless.gguf"
    write_scripted_gguf(endless, SCRIPT)
    hub.add("a/b", {"m-Q4_0.gguf": endless})
    wrapper, gate = gated
    with running_daemon(home, wrapper, env=hub.environment(home / "hf")) as daemon:
        assert post(daemon, "/api/v1/models", model="a/b:Q4_0").status_code == 200
        assert post(daemon, "/api/v1/models/load", target="a/b:Q4_0", wait=False).status_code == 202
        wait_until(lambda: daemon.model("a/b:Q4_0")["state"] == "loading", "it loads")
        assert removal(daemon) == (409, "model_in_use")
        gate.touch()
        body = {"model": "a/b:Q4_0", "stream": True, "messages": [{"role": "user", "content": "endless"}]}
        with daemon.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            while '"content":"' not in next(lines):
                """It has not begun yet."""
            leaving = threading.Thread(target=unload, args=(daemon,))
            leaving.start()
            wait_until(lambda: daemon.model("a/b:Q4_0")["state"] == "draining", "it drains")
            assert removal(daemon) == (409, "model_in_use")
        leaving.join()
        assert removal(daemon) == (200, None)


def removal(daemon: RunningDaemon) -> tuple[int, str | None]:
    answer = daemon.http.delete("/api/v1/models", params={"model": "a/b"})
    return answer.status_code, answer.json().get("error", {}).get("code")


def unload(daemon: RunningDaemon) -> None:
    with httpx.Client(base_url=daemon.url, timeout=PATIENCE, trust_env=False) as http:
        http.post("/api/v1/models/unload", json={"model": "a/b:Q4_0"})
