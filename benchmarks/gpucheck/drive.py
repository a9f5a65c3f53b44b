"""A daemon of its own for the check, asked over 127.0.0.1, and a neighbour that holds a device's memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.servers import serving

_LOOK_S = 0.1
_TERM_S = 20


@dataclass(frozen=True)
class Refused(Exception):
    """The daemon's own error: its code and its words."""

    code: str
    message: str


class Daemon:
    """A running daemon. Every call may take as long as the whole check."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder = folder
        self._http = httpx.Client(base_url=url, timeout=None, trust_env=False)

    def plan(self, model: str) -> dict[str, Any]:
        return self._post("/api/v1/plan", {"target": model})

    def load(self, model: str) -> dict[str, Any]:
        return self._post("/api/v1/models/load", {"target": model})

    def unload(self, model: str) -> None:
        self._post("/api/v1/models/unload", {"model": model})

    def devices(self) -> dict[str, dict[str, Any]]:
        """The devices by name, asked anew."""
        found = self._answer(self._http.get("/api/v1/devices", params={"again": "true"}))["devices"]
        return {device["name"]: device for device in found}

    def complete(self, model: str, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
        """One answer of exactly so many tokens, with the engine's timings."""
        body = {"prompt": list(prompt), "n_predict": tokens, "ignore_eos": True, "cache_prompt": False}
        return self._post(f"/upstream/{model}/completion", body)

    def log(self, model: str) -> list[str]:
        """The lines of the engine's log."""
        files = sorted(self._folder.rglob(f"logs/{model}.log"))
        return files[0].read_text("utf-8", "replace").splitlines() if files else []

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._answer(self._http.post(path, json=body))

    @staticmethod
    def _answer(answer: httpx.Response) -> dict[str, Any]:
        found: dict[str, Any] = answer.json()
        if answer.status_code != httpx.codes.OK:
            error = found.get("error", {})
            raise Refused(str(error.get("code")), str(error.get("message")))
        return found


@contextmanager
def daemon(engine: Path, folder: Path, models: Mapping[str, Mapping[str, object]]) -> Iterator[Daemon]:
    """A daemon that knows these models, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    with serving(engine, folder, {"models": models}) as (_, url):
        yield Daemon(url, folder)


def greedy_engine(engine: Path, folder: Path, model: Path, n_ctx: int, address_space: int = 0) -> Path:
    """A program that starts the engine for one model with another context than it is told: its plans are wrong.

    address_space: bytes that it may then have; 0: no limit.
    """
    limit = f"ulimit -v {address_space >> 10}; " if address_space else ""
    path = folder / "llama-server"
    path.write_text(
        f'#!/bin/sh\ncase " $* " in\n*" -m {model} "*) {limit}exec \'{engine}\' "$@" --ctx-size {n_ctx};;\nesac\n'
        f"exec '{engine}' \"$@\"\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


@contextmanager
def neighbour(engine: Path, model: Path, folder: Path, device: str, n_ctx: int) -> Iterator[str]:
    """Another program that holds memory of a device, unknown to any daemon; what became of it.

    It is an engine with a large cache, started by hand.
    """
    log = folder / "neighbour.log"
    socket = folder / "neighbour.sock"
    argv = [str(engine), "-m", str(model), "--host", str(socket), "--device", device, "--n-gpu-layers", "99"]
    more = ["--ctx-size", str(n_ctx), "--parallel", "1", "--fit", "off", "--no-warmup", "--no-ui"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*argv, *more], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(os.environ)
        )
        try:
            yield _became(process, socket)
        finally:
            process.terminate()
            try:
                process.wait(_TERM_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _became(process: subprocess.Popen[bytes], socket: Path) -> str:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://engine") as http:
        while process.poll() is None:
            try:
                if http.get("/health").status_code == httpx.codes.OK:
                    return "ready"
            except httpx.HTTPError:
                pass
            time.sleep(_LOOK_S)
    return f"it ended by itself ({process.returncode})"
