"""The servers that are compared: an engine alone, the barest relay, this program, llama-server's own router.

All run the same binary on the same model with the same flags, all at once; the idle ones cost nothing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.load import Place

MODEL = "bench"
_READY_S = 60.0


@dataclass(frozen=True)
class Server:
    """A server that is up: where it is, the process that relays, and its engine without the relay."""

    name: str
    place: Place
    pid: int
    engine: Place


_QUIET = ["--log-verbosity", "2"]
"""Warnings only: an engine logs every few seconds for each of its streams, also for those that nobody relays, and both
relays would be charged for reading that."""


def engine_options(slots: int) -> dict[str, object]:
    """For every engine: slots that share one cache, one thread of computing, so that the other core relays."""
    return {"parallel": slots, "kv_unified": True, "ctx_size": 65536, "cache_ram": 0, "threads": 1}


def engine_flags(slots: int) -> list[str]:
    """The same for llama-server."""
    sizes = [(f"--{name.replace('_', '-')}", value) for name, value in engine_options(slots).items()]
    return [word for flag, value in sizes for word in ([flag] if value is True else [flag, str(value)])] + _QUIET


@contextmanager
def direct(binary: Path, model: Path, folder: Path, slots: int) -> Iterator[Server]:
    """The engine alone."""
    port = _free_port()
    command = [str(binary), "-m", str(model), "--alias", MODEL, "--embeddings", *engine_flags(slots)]
    with _running([*command, "--host", "127.0.0.1", "--port", str(port)], folder / "direct.log") as process:
        _wait(f"http://127.0.0.1:{port}/health", process)
        place = Place(MODEL, port)
        yield Server("direct", place, process.pid, place)


@contextmanager
def bare(engine: Server, folder: Path) -> Iterator[Server]:
    """A relay that only passes bytes on, in front of another server's engine."""
    port = _free_port()
    command = [sys.executable, "-m", "benchmarks.bare", str(port), str(engine.place.port)]
    with _running(command, folder / "bare.log") as process:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield Server("bare", Place(MODEL, port), process.pid, engine.engine)


@contextmanager
def router(binary: Path, model: Path, folder: Path, slots: int) -> Iterator[Server]:
    """The engine's router mode: a router and the engine that it starts for the model."""
    flags = ["--embeddings", *engine_flags(slots)]
    with routing(binary, folder, f"[{MODEL}]\nmodel = {model}\n", flags) as (pid, url):
        post(f"{url}/models/load", {"model": MODEL})
        deadline = time.monotonic() + _READY_S
        while get(f"{url}/models")["data"][0]["status"]["value"] != "loaded":
            if time.monotonic() > deadline:
                raise RuntimeError("the router did not load the model; see its log")
            time.sleep(0.05)
        (engine,) = psutil.Process(pid).children()
        arguments = engine.cmdline()
        behind = Place(MODEL, int(arguments[arguments.index("--port") + 1]))
        yield Server("router", Place(MODEL, int(url.rpartition(":")[2])), pid, behind)


@contextmanager
def routing(binary: Path, folder: Path, preset: str, flags: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The engine's router mode with a preset file, nothing loaded, its log in `folder`; its pid and its URL."""
    file = folder / "router.ini"
    file.write_text(preset)
    port = _free_port()
    command = [str(binary), "--models-preset", str(file), *flags, "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, folder / "router.log") as process:
        url = f"http://127.0.0.1:{port}"
        _wait(f"{url}/health", process)
        yield process.pid, url


@contextmanager
def supervisor(binary: Path, model: Path, folder: Path, slots: int, checkout: Path | None = None) -> Iterator[Server]:
    """This program, or that of another checkout: its daemon and the engine that it starts for the model."""
    with daemon(binary, model, folder, engine_options(slots), checkout) as (process, url):
        status = post(f"{url}/api/v1/models/load", {"target": MODEL})
        arguments = psutil.Process(status["pid"]).cmdline()
        engine = Place(MODEL, socket=arguments[arguments.index("--host") + 1])
        yield Server("supervisor", Place(MODEL, int(url.rpartition(":")[2])), process.pid, engine)


@contextmanager
def daemon(
    binary: Path, model: Path, folder: Path, options: Mapping[str, object], checkout: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A daemon whose state is `folder`, with one model, not loaded; its process and its URL."""
    one = {"file": str(model), "embeddings": "on", "extra_args": _QUIET, **options}
    with serving(binary, folder, {"models": {MODEL: one}}, checkout) as running:
        yield running


@contextmanager
def serving(
    binary: Path, folder: Path, settings: Mapping[str, object], checkout: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A daemon with these settings, whose state and log are in `folder`; its process and its URL."""
    config = folder / "supervisor.yaml"
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "supervisor", "serve", "--port", "0", "--config", str(config)]
    sockets = folder / "run"
    sockets.mkdir(mode=0o700, exist_ok=True)
    own = {
        "XDG_RUNTIME_DIR": str(sockets),
        "SUPERVISOR_HOME": str(folder),
        "SUPERVISOR_LLAMA_SERVER": str(binary),
        "SUPERVISOR_API_KEY": "",
    }
    with _running(command, folder / "supervisor.log", {**os.environ, **own}, checkout) as process:
        endpoint = folder / "endpoint.json"
        deadline = time.monotonic() + _READY_S
        while not endpoint.exists():
            _check_alive(process, deadline)
            time.sleep(0.02)
        url = json.loads(endpoint.read_text())["url"]
        _wait(f"{url}/health", process)
        yield process, url


def get(url: str | urllib.request.Request) -> Any:
    """What a server answers, as JSON."""
    with urllib.request.urlopen(url, timeout=_READY_S) as answer:
        return json.load(answer)


def post(url: str, body: Mapping[str, object]) -> Any:
    """What a POST of JSON answers, as JSON."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return get(request)


@contextmanager
def _running(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in `folder` with its output in `log`; ended, asked first, at the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=env, cwd=folder)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            get(url)
            return
        except (urllib.error.URLError, OSError):
            _check_alive(process, deadline)
            time.sleep(0.02)


def _check_alive(process: subprocess.Popen[bytes], deadline: float) -> None:
    if process.poll() is not None or time.monotonic() > deadline:
        raise RuntimeError(f"{process.args!r} did not come up (exit code {process.poll()})")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
