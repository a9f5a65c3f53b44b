"""The part of the hub's protocol that downloads need: model info, trees, `resolve` with its redirect to the storage,
HEAD metadata, ranges and etags. Repositories are made in the test; every answer can be spoilt by a `Fault`.

The storage is the same server under another host name, as the real one is: a client must not send it the token.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.support.patience import PATIENCE

_CHUNK = 1 << 16
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>refs/pr/\d+|[^/]+)/(?P<path>.+)")
_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/(?P<what>revision|tree)/(?P<revision>refs/pr/\d+|[^/]+))?/?")
_STORAGE = re.compile(r"/storage/(?P<sha>[0-9a-f]{64})")


@dataclass
class Fault:
    """Something that goes wrong.

    Attributes:
        where: what the request's path contains.
        method: of the request; None: any.
        times: how often; after that all is well.
        status: answered in place of the right answer; headers go with it.
        cut_after: bytes of the body after which the connection is closed.
        rate: bytes per second of the body.
        corrupt: bytes of the body are changed.
        hold: the answer waits until this is set.
        says: headers in place of those of the right answer.
        body: in place of the right one.
        endless: zero bytes follow the body for as long as somebody reads.
        dribble: of the answer comes only ever one more byte.
    """

    where: str
    method: str | None = None
    times: int = 1 << 30
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    rate: float | None = None
    corrupt: bool = False
    hold: threading.Event | None = None
    says: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    endless: bool = False
    dribble: bool = False


@dataclass
class Seen:
    """One request, noted before its answer begins; `sent`: bytes of the answer's body, counted before they leave."""

    method: str
    path: str
    status: int
    range: str | None
    authorization: str | None
    host: str
    sent: int = 0


@dataclass
class Repository:
    """Files by revision; `main` is the newest commit."""

    id: str
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    says_size: dict[str, int] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """Make `files` the content of `ref`; the commit's hash."""
        told = json.dumps([[name, hashlib.blake2b(data).hexdigest()] for name, data in sorted(files.items())])
        name = hashlib.sha1(told.encode()).hexdigest()
        self.commits[name] = dict(files)
        self.refs[ref] = name
        return name

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The commit and its files; None: no such revision."""
        commit = self.refs.get(revision, revision)
        return (commit, self.commits[commit]) if commit in self.commits else None


class LocalHub:
    """The server. `token`: what opens private and gated repositories. `latency`: seconds before each answer."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.held = 0  # requests that have been made to wait
        self.token = "hf_secret_token_of_the_test"
        self.latency = 0.0
        self.knows_ranges = True
        self.blobs: dict[str, bytes] = {}
        self.digests: dict[int, tuple[str, str]] = {}
        self._lock = threading.Lock()
        hub = self

        class Handler(_Handler):
            owner = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.port: int = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, repo: str, files: Mapping[str, bytes | Path], ref: str = "main") -> Repository:
        """Add or change a repository."""
        found = self.repositories.setdefault(repo.lower(), Repository(repo))
        contents = {name: data if isinstance(data, bytes) else data.read_bytes() for name, data in files.items()}
        self.blobs.update({self.digests_of(data)[0]: data for data in contents.values()})
        found.commit(contents, ref)
        return found

    def digests_of(self, data: bytes) -> tuple[str, str]:
        """sha256 and sha1 of a content, which is kept for as long as the hub lives."""
        if id(data) not in self.digests:
            self.digests[id(data)] = hashlib.sha256(data).hexdigest(), hashlib.sha1(data).hexdigest()
        return self.digests[id(data)]

    def spoil(self, fault: Fault) -> Fault:
        """Let something go wrong from now on."""
        self.faults.append(fault)
        return fault

    def fault_for(self, method: str, path: str) -> Fault | None:
        """The fault of a request, used up by one."""
        with self._lock:
            for fault in self.faults:
                if fault.where in path and fault.method in {None, method} and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def hold(self, until: threading.Event) -> None:
        """Let a request wait, and count it."""
        with self._lock:
            self.held += 1
        until.wait(PATIENCE)

    def note(self, seen: Seen) -> None:
        with self._lock:
            self.seen.append(seen)

    def requests(self, where: str, method: str | None = None) -> list[Seen]:
        """What was asked for so far."""
        with self._lock:
            return [one for one in self.seen if where in one.path and method in {None, one.method}]

    def sent_bytes(self, where: str = "") -> int:
        """Bytes of all bodies whose path contains this."""
        return sum(one.sent for one in self.requests(where))

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """What makes the real client come here, with a cache of its own."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **more}

    def close(self) -> None:
        for fault in self.faults:
            if fault.hold is not None:
                fault.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def local_hub() -> Iterator[LocalHub]:
    """A hub for the length of the block."""
    hub = LocalHub()
    try:
        yield hub
    finally:
        hub.close()


class _Handler(BaseHTTPRequestHandler):
    owner: LocalHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: `LocalHub.seen` has it."""

    def _answer(self) -> None:
        hub = self.owner
        time.sleep(hub.latency)
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self._fault = hub.fault_for(self.command, path)
        if self._fault is not None and self._fault.hold is not None:
            hub.hold(self._fault.hold)
        try:
            if self._fault is not None and self._fault.status is not None:
                self._reply(self._fault.status, b'{"error": "spoilt"}', dict(self._fault.headers))
            else:
                self._route(path, parse_qs(parts.query))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _route(self, path: str, query: Mapping[str, list[str]]) -> None:
        if match := _STORAGE.fullmatch(path):
            self._storage(match["sha"])
        elif match := _RESOLVE.fullmatch(path):
            self._resolve(match["repo"], match["revision"], match["path"])
        elif match := _API.fullmatch(path):
            self._api(match["repo"], match["what"], match["revision"] or "main", query)
        else:
            self._refuse(404, "EntryNotFound", "no such page")

    def _repository(self, repo: str) -> Repository | None:
        """The repository if it may be seen; else the refusal is sent."""
        found = self.owner.repositories.get(repo.lower())
        given = self.headers.get("Authorization")
        if given is not None and given != f"Bearer {self.owner.token}":
            self._refuse(401, None, "Invalid credentials in Authorization header")
        elif found is None or (found.private and given is None):
            self._refuse(401 if given is None else 404, "RepoNotFound", "Repository not found")
        else:
            return found
        return None

    def _api(self, repo: str, what: str | None, revision: str, query: Mapping[str, list[str]]) -> None:
        found = self._repository(repo)
        if found is None:
            return
        at = found.at(revision)
        if at is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        commit, files = at
        entries = [self._entry(found, name, data) for name, data in files.items()]
        if what == "tree":
            answer: Any = [{"type": "file", "oid": e["blobId"], "path": e.pop("rfilename"), **e} for e in entries]
        else:
            siblings = entries if "blobs" in query else [{"rfilename": entry["rfilename"]} for entry in entries]
            gated = "manual" if found.gated else False
            told = {"id": found.id, "modelId": found.id, "sha": commit, "private": found.private, "gated": gated}
            answer = {**told, "tags": ["gguf"], "siblings": siblings}
        self._reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json", "X-Repo-Commit": commit})

    def _entry(self, found: Repository, name: str, data: bytes) -> dict[str, Any]:
        size = found.says_size.get(name, len(data))
        sha, blob = self.owner.digests_of(data)
        entry: dict[str, Any] = {"rfilename": name, "size": size, "blobId": blob}
        if name.endswith(".gguf"):
            entry["lfs"] = {"sha256": sha, "oid": sha, "size": size, "pointerSize": 130}
        return entry

    def _resolve(self, repo: str, revision: str, path: str) -> None:
        found = self._repository(repo)
        if found is None:
            return
        if found.gated and self.headers.get("Authorization") is None:
            self._refuse(401, "GatedRepo", f"Access to model {found.id} is restricted.")
            return
        at = found.at(revision)
        if at is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        commit, files = at
        data = files.get(path)
        if data is None:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
            return
        entry = self._entry(found, path, data)
        told = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if "lfs" not in entry:
            self._reply(200, data, {**told, "ETag": f'"{entry["blobId"]}"'})
            return
        sha = entry["lfs"]["sha256"]
        linked = {"X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(entry["size"])}
        where = f"http://localhost:{self.owner.port}/storage/{sha}?file={quote(path)}"
        self._reply(302, b"", {**told, **linked, "ETag": f'"{entry["blobId"]}"', "Location": where})

    def _storage(self, sha: str) -> None:
        if self.headers.get("Authorization") is not None:
            self._refuse(400, None, "the storage wants no token")
            return
        data = self.owner.blobs[sha]
        if self._fault is not None and self._fault.corrupt:
            data = data[:-64] + bytes(byte ^ 0x55 for byte in data[-64:])
        self._reply(200, data, {"ETag": f'"{sha}"', "Accept-Ranges": "bytes"})

    def _refuse(self, status: int, code: str | None, message: str, more: Mapping[str, str] | None = None) -> None:
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(more or {})}
        self._reply(status, json.dumps({"error": message}).encode(), headers)

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        fault = self._fault or Fault("")
        if fault.dribble:
            self._dribble()
            return
        body = body if fault.body is None else fault.body
        headers = {**headers, **fault.says}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        told = dict(headers)
        if status == 200 and wanted and "Accept-Ranges" in told and self.owner.knows_ranges:
            first, last = int(wanted[1]), min(int(wanted[2] or len(body)), len(body) - 1)
            if first >= len(body):
                status, told["Content-Range"], body = 416, f"bytes */{len(body)}", b""
            else:
                status, told["Content-Range"] = 206, f"bytes {first}-{last}/{len(body)}"
                body = body[first : last + 1]
        host = (self.headers.get("Host") or "").partition(":")[0]
        path = unquote(urlsplit(self.path).path)
        seen = Seen(self.command, path, status, self.headers.get("Range"), self.headers.get("Authorization"), host)
        self.owner.note(seen)
        self.send_response(status)
        for name, value in told.items():
            self.send_header(name, value)
        if fault.endless:
            self.close_connection = True
        elif "Content-Length" not in told:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self._send(body, seen)

    def _send(self, body: bytes, seen: Seen) -> None:
        fault = self._fault
        end = len(body)
        if fault is not None and fault.cut_after is not None and fault.cut_after < end:
            end = fault.cut_after
            self.close_connection = True
        step = _CHUNK if fault is None or fault.rate is None else max(1, int(fault.rate / 20))
        for start in range(0, end, step):
            piece = body[start : min(start + step, end)]
            seen.sent += len(piece)
            self.wfile.write(piece)
            if fault is not None and fault.rate is not None:
                time.sleep(len(piece) / fault.rate)
        while fault is not None and fault.endless:
            seen.sent += _CHUNK
            self.wfile.write(bytes(_CHUNK))

    def _dribble(self) -> None:
        """A head that goes on for as long as somebody reads."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            self.wfile.write(b"s")
            time.sleep(0.05)
