"""A node that lends files, and does it wrong on request: HTTP over mutual TLS, with a certificate of the cluster's."""

from __future__ import annotations

import contextlib
import re
import ssl
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from supervisor.cluster.kept import Membership
from supervisor.core.cluster.messages import Node
from supervisor.workers.authority import Authority, new_request
from tests.support.patience import PATIENCE

CUT = 1_000_000
"""Bytes after which an answer breaks off, where it does."""


@dataclass
class FakeNode:
    """A node.

    Attributes:
        files: contents by hash.
        fault: what it does wrong; empty: nothing.
        asked: methods and ranges, in order.
        used: set once it was asked for as much as it will be.
        after: another node's `used`, which its own answers to HEAD wait for.
    """

    name: str
    files: dict[str, bytes]
    fault: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    used: threading.Event = field(default_factory=threading.Event)
    after: threading.Event | None = None
    over: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    serial: str = ""

    def told(self) -> Node:
        """What it tells of itself."""
        return Node(self.name, "127.0.0.1", self.port, "1", serial=self.serial)

    @property
    def ranges(self) -> list[str | None]:
        """What was asked for of its files."""
        return [ranged for method, ranged in self.asked if method == "GET"]


@contextlib.contextmanager
def serving(node: FakeNode, kept: Membership) -> Iterator[FakeNode]:
    """Have a node answer, on a port of its own, with a certificate of its own. kept: has the authority."""

    class Handler(_Handler):
        owner = node

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(kept.authority)
    key, request = new_request()
    certificate, node.serial = Authority(kept.folder).sign_node(request, node.name, "127.0.0.1")
    with tempfile.NamedTemporaryFile("wb") as file:
        file.write(key + certificate.encode())
        file.flush()
        context.load_cert_chain(file.name)
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    node.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield node
    finally:
        node.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FakeNode

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Say whether it has a file."""
        node, data = self.owner, self._data()
        node.asked.append(("HEAD", None))
        if node.after is not None:
            node.after.wait(PATIENCE)
        if node.fault in {"mute", "size", "other"}:  # it is asked for nothing after that
            node.used.set()
        if node.fault == "mute":
            node.over.wait(PATIENCE)
            self.close_connection = True
            return
        size = len(data or b"") + (node.fault == "size")
        etag = '"other"' if node.fault == "other" else self._etag
        self._head(404 if data is None else 200, {"ETag": etag, "Content-Length": str(size)})

    def do_GET(self) -> None:
        """Send a range of a file."""
        node, data = self.owner, self._data()
        node.asked.append(("GET", self.headers["Range"]))
        node.used.set()
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        assert data is not None
        assert found is not None
        first, last = int(found[1]), int(found[2])
        with contextlib.suppress(OSError):
            self._answer(data, first, last)

    def _answer(self, data: bytes, first: int, last: int) -> None:
        body = data[first : last + 1]
        told = {"ETag": self._etag, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        right = {**told, "Content-Length": str(len(body))}
        answers: dict[str, tuple[int, dict[str, str], bytes]] = {
            "altered": (206, right, body[:-1] + bytes([body[-1] ^ 1])),
            "cut": (206, right, body[:CUT]),
            "short": (206, {**right, "Content-Length": str(CUT)}, body[:CUT]),
            "long": (206, {**right, "Content-Length": str(len(body) + 1)}, body + b"!"),
            "endless": (206, {**told, "Connection": "close"}, body),
            "elsewhere": (206, {**right, "Content-Range": f"bytes {first + 1}-{last + 1}/{len(data)}"}, body),
            "larger": (206, {**right, "Content-Range": f"bytes {first}-{last}/{len(data) + 1}"}, body),
            "unnamed": (206, {**right, "ETag": '"other"'}, body),
            "whole": (200, {"ETag": self._etag, "Content-Length": str(len(data))}, data),
            "moved": (302, {"Location": self.path, "Content-Length": "0"}, b""),
            "broken": (500, {"Content-Length": "0"}, b""),
            "busy": (503, {"Retry-After": "0", "Content-Length": "0"}, b""),
            "slow": (206, right, body[:10]),
        }
        if self.owner.fault in {"dribble", "headers", "noise"}:
            self._rave()
        else:
            self._head(*answers.get(self.owner.fault, (206, right, body)))
        if self.owner.fault == "slow":
            self.owner.over.wait(PATIENCE)
        while self.owner.fault == "endless":
            self.wfile.write(bytes(1 << 16))
        self.close_connection = self.owner.fault in {"cut", "noise", "slow"}

    def _rave(self) -> None:
        """Say what is no answer."""
        if self.owner.fault == "noise":
            self.wfile.write(b"\0\1\2 this is not HTTP \r\n\r\n")
            return
        self.wfile.write(b"HTTP/1.1 206 Partial Content\r\nX-Slow: ")
        while self.owner.fault == "headers":
            self.wfile.write(b"X-More: header\r\n" * 1000)
        while not self.owner.over.wait(0.05):
            self.wfile.write(b"s")

    @property
    def _etag(self) -> str:
        return f'"{self.path.rpartition("/")[2]}"'

    def _data(self) -> bytes | None:
        return self.owner.files.get(self.path.removeprefix("/cluster/blobs/"))

    def _head(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
