"""A real daemon in a process of its own, with a scratch home, always ended by its pid."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import psutil
import yaml

from tests.support.patience import PATIENCE

Settings: TypeAlias = Mapping[str, Any] | None

ROOT = Path(__file__).parents[2]
NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9"}
"""No test asks a hub that it did not make."""
_OWN = ("SUPERVISOR_", "XDG_", "LLAMA_", "HF_")


class RunningDaemon:
    """What a test needs to know of the daemon it talks to."""

    def __init__(self, home: Path, process: subprocess.Popen[bytes], endpoint: Mapping[str, Any]) -> None:
        self.home = home
        self.process = process
        self.pid: int = endpoint["pid"]
        self.url: str = endpoint["url"]
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False)

    def model(self, name: str) -> dict[str, Any]:
        """One model's status."""
        found = self.http.get("/api/v1/models").json()["models"]
        return next(model for model in found if model["id"] == name)

    def load(self, target: str, **options: Any) -> dict[str, Any]:
        """Load and wait; the status."""
        answer = self.http.post("/api/v1/models/load", json={"target": target, "options": options})
        assert answer.status_code == 200, answer.text
        status: dict[str, Any] = answer.json()
        return status

    def chat(self, model: str, content: str, **more: Any) -> httpx.Response:
        """One chat request."""
        body = {"model": model, "messages": [{"role": "user", "content": content}], **more}
        return self.http.post("/v1/chat/completions", json=body)

    def leave(self, path: str, body: object, begun: Callable[[], bool] | None = None) -> None:
        """Ask for an endless answer, and close the connection once it has `begun`. None: once it is in flight."""
        address = httpx.URL(self.url)
        headers = {**self.http.headers, "content-type": "application/json"}
        with contextlib.closing(http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE)) as client:
            client.request("POST", path, json.dumps(body), headers)
            wait_until(begun or (lambda: not self.at_rest()), "the answer has begun")

    def at_rest(self) -> bool:
        """Whether no request is in flight; what the ended ones counted is counted then.

        A client that stops at the last event of a stream is some moments ahead of that.
        """
        return bool(self.http.get("/api/v1/requests").json() == {"requests": []})

    def tool_calls(self) -> dict[str, Any]:
        """What was counted of tool calls by now, by model."""
        wait_until(self.at_rest, "all requests have ended")
        counts: dict[str, Any] = self.http.get("/api/v1/toolcalls").json()["models"]
        return counts

    def engine_socket(self, model: str) -> str:
        """The Unix socket of the model's engine, from its command line."""
        argv = psutil.Process(self.model(model)["pid"]).cmdline()
        return argv[argv.index("--host") + 1]

    def slots(self, model: str) -> list[dict[str, Any]]:
        """What the engine itself says of its slots."""
        transport = httpx.HTTPTransport(uds=self.engine_socket(model))
        with httpx.Client(transport=transport, base_url="http://engine", timeout=PATIENCE) as client:
            found: list[dict[str, Any]] = client.get("/slots").json()
            return found

    def busy_slots(self, model: str) -> int:
        """How many slots the engine itself says are at work."""
        return sum(slot["is_processing"] for slot in self.slots(model))


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Fails the test with `what` where it never comes."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}"
        time.sleep(0.005)


@contextlib.contextmanager
def scratch_home() -> Iterator[Path]:
    """A short folder: sockets live below it."""
    folder = Path(tempfile.mkdtemp(prefix="sup-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(home: Path, engine: Path, **more: str) -> dict[str, str]:
    """The environment of a scratch installation that uses the test engine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    runtime = home / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return {
        **kept,
        **NO_HUB,
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "SUPERVISOR_HOME": str(home),
        "XDG_RUNTIME_DIR": str(runtime),
        "SUPERVISOR_LLAMA_SERVER": str(engine),
        **more,
    }


def configuration(settings: Settings) -> str:
    """The settings as a file.

    Engines compute with one thread unless the settings say otherwise: tiny models are no faster with more, whose
    waiting takes the processors from other tests.
    """
    chosen = dict(settings or {})
    return yaml.safe_dump({**chosen, "defaults": {"threads": 1, **chosen.get("defaults", {})}})


def start_daemon(
    home: Path,
    engine: Path,
    settings: Settings = None,
    *args: str,
    env: Mapping[str, str] | None = None,
    open_files: int | None = None,
) -> RunningDaemon:
    """Start a daemon on a free port and wait until it answers. open_files: how many files it may have open."""
    config = home / "test.yaml"
    config.write_text(configuration(settings))
    log = (home / "daemon-output.log").open("ab")
    limited = [] if open_files is None else ["sh", "-c", f'ulimit -n {open_files} && exec "$@"', "sh"]
    process = subprocess.Popen(
        [*limited, sys.executable, "-P", "-m", "supervisor", "serve", "--port", "0", "--config", str(config), *args],
        env=environment(home, engine, **(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=home,
    )
    log.close()
    endpoint = home / "endpoint.json"
    output = home / "daemon-output.log"

    def up() -> bool:
        assert process.poll() is None, output.read_text()
        return endpoint.exists() and json.loads(endpoint.read_text())["pid"] == process.pid

    try:
        wait_until(up, "the daemon's endpoint file")
        return RunningDaemon(home, process, json.loads(endpoint.read_text()))
    except BaseException:
        process.kill()
        process.wait()
        raise


@contextlib.contextmanager
def running_daemon(
    home: Path,
    engine: Path,
    settings: Settings = None,
    *args: str,
    env: Mapping[str, str] | None = None,
    open_files: int | None = None,
) -> Iterator[RunningDaemon]:
    """A daemon for the length of the block; afterwards neither it nor a child of it lives."""
    daemon = start_daemon(home, engine, settings, *args, env=env, open_files=open_files)
    try:
        yield daemon
    finally:
        daemon.http.close()
        children = psutil.Process(daemon.pid).children(recursive=True) if daemon.process.poll() is None else []
        daemon.process.terminate()
        try:
            daemon.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            daemon.process.wait()
            raise
        gone, alive = psutil.wait_procs(children, timeout=PATIENCE)
        assert not alive, f"left behind: {alive} (gone: {gone})"
