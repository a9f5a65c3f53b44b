"""A scripted daemon: the REST contract on a real HTTP server, without engines.

In a test: `with FakeDaemon() as daemon:` serves on a thread. As a program (`python fake_daemon.py`) it behaves as the
real one does towards the command line: it takes the lock, writes the endpoint file, and ends on request.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from supervisor.system.proof import CHALLENGE_HEADER, PROOF_HEADER, new_secret, prove
from tests.support.patience import PATIENCE

Json = dict[str, Any]
VERSION = "0.1.0"


def model(name: str, state: str = "unloaded", **more: Any) -> Json:
    """A model's status with every key of the contract."""
    facts = ["path", "pid", "n_ctx", "loaded_at", "load_seconds", "rss_bytes", "size_bytes", "embeddings"]
    blank = dict.fromkeys([*facts, "stage", "progress", "error"])
    return {"id": name, "aliases": [], "source": "file", "state": state, "leases": 0, "waiting": 0, **blank, **more}


def chunk(**delta: Any) -> Json:
    """One chunk of a chat stream."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


class FakeDaemon:
    """The server, and what the test scripts it to say.

    models: the statuses by id. answers: what other paths answer. refusal: the error that a restart answers: status,
    code, message. loading: events a load sends (default: loading, then
    ready). chat: the chunks of the next answers, a callable of the request. disk: models on disk. nodes: of its
    cluster. remarks: what each event of a load has besides. requests: (method, path with query, body) as they came in.
    held: set by the test to let a stream go on that yields the `WAIT` marker; reached: set when a stream got there.
    breaks: how many of the next questions for the status are broken off.
    """

    WAIT = "wait"

    def __init__(self, *, pid: int | None = None, version: str = VERSION, key: str | None = None) -> None:
        self.models: dict[str, Json] = {"demo": model("demo", source="demo")}
        self.engine: Json | None = {"path": "/opt/llama-server", "build": 11434, "source": "PATH"}
        self.answers: dict[str, Json] = {}
        self.refusal: tuple[int, str, str] | None = None
        self.config: Json = {"path": None, "loaded_at": time.time(), "error": None, "restart_needed": []}
        self.loading: list[Json | str] | None = None
        self.chat: Callable[[Json], list[Json | str]] = introduce
        self.disk: list[Json] = []
        self.remarks: Json = {}
        self.nodes: list[Json] = []
        self.stopping = False
        self.breaks = 0
        self.logs: list[str] = ["first line", "second line"]
        self.in_flight: list[Json] = []
        self.events: list[tuple[str, Json]] = []
        self.requests: list[tuple[str, str, Json]] = []
        self.held, self.reached, self.gone = threading.Event(), threading.Event(), threading.Event()
        self.on_shutdown: Callable[[], None] = lambda: None
        self.secret = new_secret()
        self.pid, self.version, self.key = pid or os.getpid(), version, key
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.daemon = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server; from another thread than its own."""
        self.held.set()
        self._server.shutdown()
        self._server.server_close()

    def serve_forever(self) -> None:
        """Serve until `__exit__` on another thread."""
        self._server.serve_forever(poll_interval=0.01)

    def write_endpoint(self, state: Path, pid: int | None = None) -> None:
        """Leave the endpoint file that a daemon keeps."""
        state.mkdir(parents=True, exist_ok=True)
        found = {"url": self.url, "secret": self.secret, "pid": pid or self.pid}
        found |= {"version": self.version, "started_at": time.time()}
        scratch = state / f"endpoint.{os.getpid()}"
        scratch.write_text(json.dumps(found))
        scratch.replace(state / "endpoint.json")

    def status(self) -> Json:
        """The answer of /api/v1/status."""
        return {
            "version": self.version,
            "pid": self.pid,
            "url": self.url,
            "started_at": time.time(),
            "stopping": self.stopping,
            "config": self.config,
            "engine": self.engine,
            "models": list(self.models.values()),
        }

    def called(self, path: str) -> list[Json]:
        """The bodies of the requests to `path`."""
        return [body for _, found, body in self.requests if found == path]


def introduce(request: Json) -> list[Json | str]:
    """A few words, or a call of the first tool offered."""
    if request.get("tools"):
        name = request["tools"][0]["function"]["name"]
        return [
            chunk(tool_calls=[{"index": 0, "id": "1", "function": {"name": name, "arguments": ""}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"city":'}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": ' "Paris"}'}}]),
        ]
    return [chunk(role="assistant"), chunk(content="I am "), chunk(content="a script.")]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    daemon: FakeDaemon


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        challenge = self.headers.get(CHALLENGE_HEADER)
        if challenge is None:
            self._answer("GET")
        else:
            self._prove(self.server.daemon, challenge)

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        daemon = self.server.daemon
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        daemon.requests.append((method, self.path, body))
        path = urlsplit(self.path).path
        if daemon.key and self.headers.get("Authorization") != f"Bearer {daemon.key}":
            self._error(401, "unauthorized", "The key is missing or wrong.")
        elif path in ("/api/v1/status", "/health"):
            self._status(daemon)
        elif path == "/api/v1/disk":
            self._json(200, {"models": daemon.disk})
        elif path == "/api/v1/models/load":
            self._load(daemon, body)
        elif path == "/api/v1/models/unload":
            self._unload(daemon, body)
        elif path == "/api/v1/logs":
            self._logs(daemon)
        elif path == "/v1/chat/completions":
            self._stream([*daemon.chat(body), "[DONE]"])
        elif path == "/api/v1/shutdown":
            self._json(202, {"status": "stopping"})
            daemon.on_shutdown()
        elif path in daemon.answers:
            self._json(200, daemon.answers[path])
        else:
            self._answer_more(daemon, path, body)

    def _restart(self, daemon: FakeDaemon) -> None:
        if daemon.refusal is not None:
            self._error(*daemon.refusal)
        else:
            daemon.version = VERSION
            self._json(200, {"status": "restarted", "pid": daemon.pid})

    def _status(self, daemon: FakeDaemon) -> None:
        if daemon.breaks:
            daemon.breaks -= 1
            self.close_connection = True
        else:
            self._json(200, daemon.status())

    def _prove(self, daemon: FakeDaemon, challenge: str) -> None:
        self.send_response(200)
        self.send_header(PROOF_HEADER, prove(daemon.secret, challenge, self.server.server_port) or "")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer_more(self, daemon: FakeDaemon, path: str, body: Json) -> None:
        if path == "/api/v1/restart":
            self._restart(daemon)
        elif path in ("/api/v1/models/pin", "/api/v1/models/unpin"):
            self._pin(daemon, body, pinned=path.endswith("/pin"))
        elif path == "/api/v1/requests":
            self._json(200, {"requests": daemon.in_flight})
        elif path == "/api/v1/cluster/plan":
            self._error(409, "cluster_off", "This daemon is in no cluster.")
        elif path == "/api/v1/cluster/nodes":
            self._json(200, {"node": None, "connected": False, "unable": None, "nodes": daemon.nodes})
        elif path.startswith("/api/v1/requests/"):
            self._cancel(daemon, path.rpartition("/")[2])
        elif path == "/api/v1/events":
            self._start("text/event-stream")
            self._chunks(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in daemon.events)
        else:
            self._error(404, "route_not_found", f"No {path}.")

    def _load(self, daemon: FakeDaemon, body: Json) -> None:
        name = body.get("id") or Path(body["target"]).stem
        if daemon.loading is not None:
            self._stream(daemon.loading)
            return
        ready = model(name, "ready", pid=4711, n_ctx=4096, load_seconds=0.25, loaded_at=time.time())
        events = [ready] if daemon.models.get(name, {}).get("state") == "ready" else [model(name, "loading"), ready]
        events = [{**event, **daemon.remarks} for event in events]
        daemon.models[name] = ready
        self._stream(list(events))

    def _unload(self, daemon: FakeDaemon, body: Json) -> None:
        if body["model"] not in daemon.models:
            self._error(404, "model_not_found", f"No model {body['model']}.")
            return
        daemon.models[body["model"]] = model(body["model"])
        self._json(200, daemon.models[body["model"]])
        daemon.held.set()

    def _cancel(self, daemon: FakeDaemon, number: str) -> None:
        found = [one for one in daemon.in_flight if str(one["id"]) == number]
        if found:
            daemon.in_flight = [one for one in daemon.in_flight if one not in found]
            self._json(200, found[0])
        else:
            self._error(404, "request_not_found", f"There is no request {number} in flight.")

    def _pin(self, daemon: FakeDaemon, body: Json, *, pinned: bool) -> None:
        daemon.models[body["model"]]["pinned"] = pinned
        self._json(200, daemon.models[body["model"]])

    def _logs(self, daemon: FakeDaemon) -> None:
        query = parse_qs(urlsplit(self.path).query)
        lines = daemon.logs[-int(query["lines"][0]) :]
        self._start("text/plain")
        self._chunks(f"{line}\n".encode() for line in lines)

    def _stream(self, events: list[Json | str]) -> None:
        self._start("text/event-stream")
        self._chunks(self._encoded(events))

    def _encoded(self, events: list[Json | str]) -> Iterator[bytes]:
        daemon = self.server.daemon
        for event in events:
            if event == FakeDaemon.WAIT:
                daemon.reached.set()
                daemon.held.wait(PATIENCE)
            elif event == "[DONE]":
                yield b"data: [DONE]\n\n"
            else:
                yield b": a comment\n" + f"data: {json.dumps(event)}\n\n".encode()

    def _chunks(self, parts: Iterator[bytes]) -> None:
        try:
            for part in parts:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.server.daemon.gone.set()
            self.close_connection = True

    def _start(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _json(self, status: int, value: Json) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, code: str, message: str) -> None:
        self._json(status, {"error": {"message": message, "type": "error", "code": code, "param": None}})


def _main() -> int:
    """`fake_daemon.py [--lines TEXT] [--exit N]`: hold $SUPERVISOR_HOME like the real one."""
    state = Path(os.environ["SUPERVISOR_HOME"])
    if "--exit" in sys.argv:
        sys.stderr.write("error: the port is taken [address_in_use]\n")
        return int(sys.argv[sys.argv.index("--exit") + 1])
    with (state / "daemon.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.stderr.write("error: a daemon is running [daemon_already_running]\n")
            return 1
        ended = threading.Event()
        with FakeDaemon() as daemon:
            daemon.on_shutdown = ended.set
            daemon.write_endpoint(state)
            ended.wait(PATIENCE)
            (state / "endpoint.json").unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
