"""A llama-server of its own, asked without us; requests of every API to it, and its answers made comparable."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from supervisor.demo.maker import write_scripted_gguf
from supervisor.demo.script import Script
from tests.support.engine_binary import ONE_THREAD
from tests.support.patience import PATIENCE

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
RAW = "/completion"

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {key: {} for key in keys}}},
    }
    for name, keys in (("get_weather", ("city", "unit")), ("alpha", ("x",)), ("beta", ()))
]
FUNCTIONS = [{"type": "function", **tool["function"]} for tool in TOOLS]
USABLE = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in TOOLS]
ID = re.compile(r"\A((?:chatcmpl-|resp_|rs_|msg_|fc_|call_)?)\w{32}\Z")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)  # closed with the connection, also when this fails


@contextmanager
def bare_engine(binary: Path, script: Script, *arguments: str) -> Iterator[str]:
    """Socket path of a running llama-server with four slots."""
    with tempfile.TemporaryDirectory(prefix="bare") as folder:
        model, path = Path(folder, "m.gguf"), str(Path(folder, "s.sock"))
        write_scripted_gguf(model, script)
        fixed = ("--parallel", "4", "-c", "16384", "-fit", "off", *ONE_THREAD)
        argv = [str(binary), "-m", str(model), "--host", path, *fixed]
        with Path(folder, "log").open("wb") as log:
            child = subprocess.Popen([*argv, *arguments], stdout=log, stderr=log)
        try:
            wait_until_ready(child, path)
            yield path
        finally:
            child.kill()
            child.wait()


def wait_until_ready(child: subprocess.Popen[bytes], path: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert child.poll() is None, "the engine exited"
        with suppress(OSError), closing(UnixConnection(path)) as connection:
            connection.request("GET", "/health")
            with connection.getresponse() as response:
                if response.status == 200:
                    return
        time.sleep(0.02)  # nothing to await: this llama-server is driven without its state protocol
    raise AssertionError("the engine was not ready in time")


def post(engine: str, path: str, body: bytes) -> tuple[int, bytes]:
    with closing(UnixConnection(engine)) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            return response.status, response.read()


def chat(word: str, **fields: Any) -> dict[str, Any]:
    # cache_prompt off: the usage of the second of two equal requests would show cached tokens
    return {"messages": [{"role": "user", "content": word}], "temperature": 0, "cache_prompt": False, **fields}


def text(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "temperature": 0, "cache_prompt": False, **fields}


def said(given: Any, **fields: Any) -> dict[str, Any]:
    """A request to `/v1/responses`."""
    return {"input": given, "temperature": 0, "cache_prompt": False, **fields}


def message(word: str, **fields: Any) -> dict[str, Any]:
    """A request to `/v1/messages`, which knows no `cache_prompt`."""
    return {"messages": [{"role": "user", "content": word}], "temperature": 0, "max_tokens": 99, **fields}


def comparable(answer: Any) -> Any:
    """Random ids and times replaced by their kind; timings by their keys."""
    if isinstance(answer, list):
        return [comparable(one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    found = {key: comparable(value) for key, value in answer.items()}
    for key, form in (("id", ID), ("call_id", ID)):
        if isinstance(answer.get(key), str):
            found[key] = form.sub(r"\1", answer[key])
    for key in ("created", "created_at", "completed_at", "id_slot"):
        if key in answer:
            found[key] = type(answer[key])
    if "timings" in answer:
        found["timings"] = set(answer["timings"])
    return found


ID = re.compile(r"\A((?:chatcmpl-|resp_|rs_|msg_|fc_|call_)?)\w{32}\Z")


def masked(stream: bytes) -> list[bytes]:
    """The events without random ids, times and timings; sorted by choice, whose order among each other is free."""
    for pattern, fixed in (
        (rb'"created":\d+', b'"created":0'),
        (rb'"created_at":\d+', b'"created_at":0'),
        (rb"(chatcmpl-|resp_|rs_|msg_|fc_|call_)\w{32}", rb"\1"),
        (rb'"id_slot":\d+', b'"id_slot":0'),
        (rb'"id":"\w{32}"', b'"id":"call"'),
        (rb'"timings":\{[^}]*\}', b'"timings":{}'),
    ):
        stream = re.sub(pattern, fixed, stream)
    return sorted(stream.split(b"\n\n"), key=lambda event: b'"index":1' in event)
