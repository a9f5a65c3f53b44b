"""From a plan to an answer on a GPU back end: what is computed there, what is learned of it, and how it ends."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from supervisor.core.gguf import read_header
from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Reply, Script
from tests.support.adapters import write_stubborn_adapter
from tests.support.daemon import RunningDaemon, environment, wait_until
from tests.support.gpu import DRIVER, MIB, gpu_bench
from tests.support.patience import PATIENCE
from tests.support.planning_bench import Bench, by_device
from tests.support.projector import write_projector
from tests.support.vulkan import VulkanEngine

pytestmark = [pytest.mark.engine, pytest.mark.gpu]

HELLO = "Hello from the test model; it always says this."
THOUGHT = "The answer is forty-two."
ENDLESS = "and on and on it goes, round after round, "
SCRIPT = Script(
    name="talker",
    default=HELLO,
    replies=(Reply("think", THOUGHT), Reply("endless", ENDLESS, endless=True)),
    n_ctx=32768,
)
BOTH = ["Vulkan0", "Vulkan1"]
SMALL = {"ctx_size": 2048, "parallel": 1}
ONE_EACH = {"Vulkan0": 300, "Vulkan1": 300}
"""MiB: room for one engine, most of which is kept back for it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, an adapter and a projector."""
    folder = tmp_path_factory.mktemp("chain")
    write_scripted_gguf(folder / "talker.gguf", SCRIPT)
    write_scripted_gguf(folder / "draft.gguf", SCRIPT)
    write_stubborn_adapter(folder / "adapter.gguf", folder / "talker.gguf", "x")
    write_projector(folder / "mmproj.gguf", embedding_of(folder / "talker.gguf"))
    return folder


@pytest.fixture(scope="module")
def bench(vulkan_engine: VulkanEngine, folder: Path) -> Iterator[Bench]:
    """A daemon with two devices, whose models share a file."""
    model = {"file": str(folder / "talker.gguf"), **SMALL}
    draft = {"spec_draft_model": str(folder / "draft.gguf"), "spec_type": ["draft-simple"]}
    models = {
        "talker": model,
        "stubborn": {**model, "lora": [{"path": str(folder / "adapter.gguf")}], "device": ["Vulkan1"]},
        "seeing": {**model, "mmproj": str(folder / "mmproj.gguf")},
        "drafted": {**model, **draft},
    }
    with gpu_bench(vulkan_engine, 2, folder, {"models": models}) as bench:
        yield bench


WAYS: dict[str, dict[str, Any]] = {
    "one device": {"device": ["Vulkan0"]},
    "the second device": {"device": ["Vulkan1"]},
    "two devices": {"device": BOTH, "tensor_split": [1, 1]},
    "two devices, the other way round": {"device": BOTH[::-1], "tensor_split": [1, 1]},
    "one of two, counted": {"split_mode": "none", "main_gpu": 1},
    "some layers on the host": {"device": ["Vulkan0"], "n_gpu_layers": 1},
    "caches on the host": {"device": ["Vulkan0"], "kv_offload": False},
    "no flash attention": {"device": ["Vulkan0"], "flash_attn": "off"},
    "the host alone": {"device": []},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_computed_is_right(bench: Bench, folder: Path, way: str) -> None:
    bench.load_and_stay("talker", folder / "talker.gguf", **WAYS[way])
    assert [said(bench.daemon, "talker", word) for word in ("hi", "think")] == [HELLO, THOUGHT]
    bench.unload("talker")


def test_an_adapter_is_applied_on_the_device(bench: Bench) -> None:
    assert said(bench.daemon, "stubborn", "hi", max_tokens=8) == "x" * 8
    assert bench.daemon.model("stubborn")["footprint"]["Vulkan1"] > 0
    bench.unload("stubborn")


PROJECTORS: dict[str, tuple[dict[str, Any], str]] = {
    "where the layers are": ({"device": ["Vulkan1"]}, "Vulkan1"),
    "where the layers of one of two are": ({"device": BOTH, "split_mode": "none", "main_gpu": 1}, "Vulkan1"),
    "beside the layers": ({"device": BOTH, "tensor_split": [1, 0], "mmproj_device": "Vulkan1"}, "Vulkan1"),
    "not on a device": ({"device": ["Vulkan0"], "mmproj_offload": False}, "CPU"),
    "on no device": ({"device": ["Vulkan0"], "mmproj_device": "none"}, "CPU"),
    "with the host alone": ({"device": []}, "CPU"),
}


@pytest.mark.parametrize("where", PROJECTORS)
def test_a_projector_is_where_the_plan_has_it(bench: Bench, folder: Path, where: str) -> None:
    options, home = PROJECTORS[where]
    parts = by_device(bench.plan("seeing", **options))
    assert {device for device, part in parts.items() if part["projector_bytes"]} == {home}
    found = bench.load("seeing", folder / "talker.gguf", **options)
    told = {device.name: device.projector_bytes for device in found.devices if device.projector_bytes}
    assert set(told) | {"CPU"} == {home, "CPU"}  # the host has a small buffer to compute with
    assert max(told, key=lambda name: told[name]) == home
    assert parts[home]["projector_bytes"] <= told[home] + 0.01 * MIB


DRAFTS: dict[str, tuple[dict[str, Any], str]] = {
    "where the layers are": ({"device": ["Vulkan1"]}, "Vulkan1"),
    "on another device": ({"device": BOTH, "tensor_split": [1, 0], "spec_draft_device": ["Vulkan1"]}, "Vulkan1"),
    "where the layers of one of two are": ({"device": BOTH, "split_mode": "none", "main_gpu": 1}, "Vulkan1"),
    "on the host": ({"device": ["Vulkan0"], "spec_draft_device": []}, "CPU"),
}


@pytest.mark.parametrize("where", DRAFTS)
def test_a_draft_model_is_where_the_plan_has_it(bench: Bench, folder: Path, where: str) -> None:
    options, home = DRAFTS[where]
    parts = by_device(bench.plan("drafted", **options))
    _, found = bench.load_and_stay("drafted", folder / "talker.gguf", **options)
    told = {device.name: device.draft_bytes for device in found.devices}
    assert {name for name in BOTH if parts.get(name, {}).get("draft_bytes")} == {home} - {"CPU"}
    for name, part in parts.items():
        assert told.get(name, 0) - 0.03 * MIB <= part["draft_bytes"], (name, told)
    assert max(told, key=lambda name: told[name]) == home
    assert said(bench.daemon, "drafted", "hi") == HELLO
    bench.unload("drafted")


ELSEWHERE: dict[str, tuple[str, dict[str, Any], str]] = {
    "projector": ("seeing", {"device": ["Vulkan0"], "mmproj_device": "Vulkan1"}, "mmproj_device"),
    "draft": ("drafted", {"device": ["Vulkan0"], "spec_draft_device": ["Vulkan1"]}, "spec_draft_device"),
    "no layers": ("drafted", {"device": BOTH, "n_gpu_layers": 0, "spec_draft_device": ["Vulkan1"]}, "does not use"),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_a_device_that_the_model_does_not_use(bench: Bench, what: str) -> None:
    model, options, word = ELSEWHERE[what]
    error = bench.refused(model, **options)
    assert error["code"] == "device_not_listed"
    assert word in error["message"]


@pytest.mark.parametrize("mode", ["row", "tensor"])
def test_a_split_that_cannot_be_planned_is_refused(bench: Bench, mode: str) -> None:
    error = bench.refused("talker", device=BOTH, split_mode=mode)
    assert (error["code"], error["param"]) == ("invalid_request", "split_mode")


def test_the_engine_itself_refuses_to_split_rows(vulkan_engine: VulkanEngine, folder: Path) -> None:
    """Of all back ends only SYCL and Hexagon can; so nothing is lost by the refusal of ours."""
    argv = [str(vulkan_engine.path), "-m", str(folder / "talker.gguf"), "--host", str(folder / "s.sock"), "-fit", "off"]
    env = {**environment(folder, vulkan_engine.path), **DRIVER, **vulkan_engine.environment(2)}
    done = subprocess.run([*argv, "-sm", "row"], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    assert "does not support split buffers" in done.stdout + done.stderr


def test_the_second_start_is_by_what_the_first_one_showed(bench: Bench, folder: Path) -> None:
    options = {"device": ["Vulkan1"], "ctx_size": 4096}
    first = bench.plan("talker", **options)
    assert "measured with this engine" not in " ".join(first["why"])
    status, found = bench.load_and_stay("talker", folder / "talker.gguf", **options)
    assert "-lv" in arguments(status["pid"])
    bench.unload("talker")
    again = bench.plan("talker", **options)
    assert again["learned"]
    assert "measured with this engine and these options" in " ".join(again["why"])
    for name, part in by_device(again).items():
        assert abs(part["compute_bytes"] - found.on(name).compute_bytes) <= 1
    quiet = bench.daemon.load("talker", **options)
    assert "-lv" not in arguments(quiet["pid"])
    assert quiet["footprint"] == found.used_bytes
    bench.unload("talker")


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_frees_the_slot(bench: Bench, stream: bool) -> None:
    daemon, body = bench.daemon, {"model": "talker", "messages": [{"role": "user", "content": "endless"}]}
    daemon.load("talker", device=["Vulkan0"], ctx_size=32768)
    with left_open(daemon, {**body, "stream": stream}):
        wait_until(lambda: daemon.busy_slots("talker") == 1, "the request reaches the slot")
    wait_until(lambda: daemon.busy_slots("talker") == 0, "the slot is free")
    wait_until(lambda: daemon.model("talker")["leases"] == 0, "the lease is given back")
    assert said(daemon, "talker", "hi") == HELLO
    bench.unload("talker")


def test_two_models_and_two_engines_of_one_share_the_devices(vulkan_engine: VulkanEngine, folder: Path) -> None:
    """Where a device has room for one engine, the next goes to the other device."""
    model = {"file": str(folder / "talker.gguf"), **SMALL}
    models = {"one": model, "other": model, "twice": {**model, "replicas": 2}}
    settings = {"models": models, "devices": {"limit_mib": ONE_EACH}}
    with gpu_bench(vulkan_engine, 2, folder, settings) as bench:
        daemon = bench.daemon
        assert [said(daemon, name, "hi") for name in ("one", "other")] == [HELLO] * 2
        assert bench.loaded() == {"one", "other"}
        assert devices_of(daemon, "one") + devices_of(daemon, "other") in (BOTH, BOTH[::-1])
        bench.unload("one", "other")
        assert said(daemon, "twice", "hi") == HELLO
        wait_until(lambda: len(devices_of(daemon, "twice")) == 2, "both engines are ready")
        assert sorted(devices_of(daemon, "twice")) == BOTH


def devices_of(daemon: RunningDaemon, model: str) -> list[str]:
    """The devices of the model's engines that are ready, from their command lines."""
    ready = [engine["pid"] for engine in daemon.model(model)["engines"] if engine["state"] == "ready"]
    return [argv[argv.index("--device") + 1] for argv in map(arguments, ready)]


def arguments(pid: int) -> list[str]:
    return psutil.Process(pid).cmdline()


@contextlib.contextmanager
def left_open(daemon: RunningDaemon, body: Mapping[str, Any]) -> Iterator[None]:
    """A chat request whose client leaves at the end of the block, whatever it has been answered by then."""
    payload = json.dumps(body).encode()
    address = urlsplit(daemon.url)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(payload)}\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + payload)
        yield


def embedding_of(model: Path) -> int:
    with model.open("rb") as stream:
        return next(tensor.shape[0] for tensor in read_header(stream).tensors if tensor.name == "output.weight")


def said(daemon: RunningDaemon, model: str, prompt: str, **more: Any) -> str:
    found: dict[str, Any] = daemon.chat(model, prompt, **more).json()
    return str(found["choices"][0]["message"]["content"])
