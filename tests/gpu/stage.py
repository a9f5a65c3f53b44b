"""A daemon on GPUs whose memory runs out (tests/support/bounded_gpu.py), and what tests ask of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.support.bounded_gpu import BoundedGpu, BoundedGpus, make_gpus
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.gpu import DRIVER
from tests.support.patience import PATIENCE
from tests.support.scripted import ScriptedModel
from tests.support.vulkan import VulkanEngine
from tests.support.weighty import write_weighty

GPU_MIB = 64
SMALL = {"ctx_size": 2048, "parallel": 1, "batch_size": 32, "ubatch_size": 32}
"""A start that takes little beside the weights."""
_RESERVES = {"reserve_mib": {"vulkan": 1}, "engine_reserve_mib": {"vulkan": 2}}


class Stage:
    """The daemon and its devices."""

    def __init__(self, daemon: RunningDaemon, gpus: BoundedGpus) -> None:
        self.daemon = daemon
        self.gpus = gpus
        self.http = httpx.Client(base_url=daemon.url, timeout=4 * PATIENCE, trust_env=False)

    def gpu(self, number: int) -> BoundedGpu:
        """One device."""
        return self.gpus[number]

    def load(self, model: str) -> httpx.Response:
        """Load and wait."""
        return self.http.post("/api/v1/models/load", json={"target": model})

    def loaded(self, model: str) -> dict[str, Any]:
        """The status of a model whose load must succeed."""
        answer = self.load(model)
        assert answer.status_code == 200, answer.text
        status: dict[str, Any] = answer.json()
        return status

    def chat(self, model: str, content: str = "hi", **more: Any) -> httpx.Response:
        """One request."""
        body = {"model": model, "messages": [{"role": "user", "content": content}], **more}
        return self.http.post("/v1/chat/completions", json=body)

    @contextlib.contextmanager
    def stream(self, model: str, **more: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """A stream's events as they come, without the last one."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True, **more}
        with self.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
            yield (json.loads(line) for line in lines if line != "[DONE]")

    def unload(self, model: str) -> None:
        """End the model's engine at once; wait until it is gone."""
        self.http.post("/api/v1/models/unload", json={"model": model, "now": True}).raise_for_status()

    def clear(self) -> None:
        """Nothing is loaded, and the devices are as they were made."""
        for status in self.http.get("/api/v1/models").json()["models"]:
            if status["pinned"]:
                self.http.post("/api/v1/models/unpin", json={"model": status["id"]})
            if status["engines"]:
                self.unload(status["id"])
        self.gpus.reset()

    def assert_serving(self, model: str) -> None:
        """The daemon serves, and has just the engines that it shows."""
        answer = self.chat(model, max_tokens=2)
        assert answer.status_code == 200, answer.text
        models = self.http.get("/api/v1/models").json()["models"]
        shown = {engine["pid"] for status in models for engine in status["engines"]}
        wait_until(lambda: self._children() == shown, "no engine but those that are shown")

    def _children(self) -> set[int]:
        return {child.pid for child in psutil.Process(self.daemon.pid).children() if "--host" in _argv(child)}


class Cast:
    """The models of a stage, by name; each says `I am NAME.`"""

    def __init__(self, folder: Path, scripted: ScriptedModel) -> None:
        self._folder = folder
        self._scripted = scripted
        self.models: dict[str, Mapping[str, Any]] = {}

    def add(self, name: str, *, blocks: int = 1, mib: int = 1, endless: bool = False, **options: Any) -> Path:
        """A model with so many blocks of so many MiB, and its options beside `SMALL`; its file."""
        plain = self._scripted(f"I am {name}. ", endless=endless, n_ctx=options.pop("n_ctx", 32768))
        path = write_weighty(self._folder / f"{name}.gguf", plain, blocks, mib)
        given = {key: value for key, value in {**SMALL, **options}.items() if value is not None}
        self.models[name] = {"file": str(path), **given}
        return path


@contextlib.contextmanager
def stage(
    vulkan: VulkanEngine, folder: Path, models: Mapping[str, Mapping[str, Any]], count: int = 2, **settings: Any
) -> Iterator[Stage]:
    """A daemon with these models on so many devices of `GPU_MIB` each."""
    gpus = make_gpus(folder, vulkan, count, GPU_MIB)
    told = {"devices": _RESERVES, "models": models, **settings}
    with scratch_home() as home, running_daemon(home, vulkan.path, told, env={**DRIVER, **gpus.environment}) as daemon:
        found = Stage(daemon, gpus)
        yield found
        found.http.close()


def _argv(child: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return child.cmdline()
    return []
