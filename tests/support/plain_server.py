"""A llama-server without supervisor, for tests of what the engine itself does."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.engine_binary import ONE_THREAD
from tests.support.patience import PATIENCE

Json = dict[str, Any]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class PlainServer:
    """A running llama-server and its HTTP interface."""

    def __init__(self, socket_path: str, pid: int, ready_seconds: float, log: Path) -> None:
        self.log = log
        self.socket_path = socket_path
        self.pid = pid
        self.ready_seconds = ready_seconds

    def request(self, method: str, path: str, body: Json | None = None) -> tuple[int, Any]:
        """Status and decoded JSON."""
        with self._send(method, path, body) as response:
            return response.status, json.loads(response.read())

    def post(self, path: str, body: Json) -> Any:
        """The answer to a request that has to succeed."""
        status, answer = self.request("POST", path, body)
        assert status == 200, answer
        return answer

    def chat(self, content: str, **options: Any) -> Json:
        """The first choice of the answer to one user message."""
        body = {"messages": [{"role": "user", "content": content}], **options}
        choice: Json = self.post("/v1/chat/completions", body)["choices"][0]
        return choice

    def stream_chat(self, content: str, **options: Any) -> list[Json]:
        """The deltas of a streamed answer, up to and without `[DONE]`."""
        body = {"messages": [{"role": "user", "content": content}], "stream": True, **options}
        with self._send("POST", "/v1/chat/completions", body) as response:
            assert response.status == 200, response.read()
            data = [line[6:].strip() for line in response if line.startswith(b"data: ")]
        assert data.pop() == b"[DONE]"
        return [json.loads(event)["choices"][0]["delta"] for event in data]

    @contextmanager
    def _send(self, method: str, path: str, body: Json | None) -> Iterator[http.client.HTTPResponse]:
        connection = _UnixConnection(self.socket_path)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()


@contextmanager
def plain_server(binary: Path, model: Path, *arguments: str) -> Iterator[PlainServer]:
    """Start `binary` with `model`; yields when it is ready, ends it by its pid in every case."""
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        socket_path, log = f"{folder}/s.sock", Path(folder) / "log"
        # With this variable the engine reports its state on stdout, and ends when its stdin does.
        env = {**os.environ, "LLAMA_SERVER_ROUTER_PORT": "1"}
        argv = [str(binary), "-m", str(model), "--host", socket_path, *ONE_THREAD, *arguments]
        started = time.perf_counter()
        with (
            log.open("wb") as stderr,
            subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=env) as process,
        ):
            try:
                assert process.stdout is not None
                if not any(b'"ready"' in line for line in process.stdout):
                    raise AssertionError(f"{binary} ended before it was ready:\n{log.read_text(errors='replace')}")
                yield PlainServer(socket_path, process.pid, time.perf_counter() - started, log)
            finally:
                process.kill()
