"""Real servers of pictures: what they were asked for, and answers of every kind."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext


def png(side: int = 28) -> bytes:
    """A whole picture, all black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\0" * 3 * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    """A whole picture of 35 bytes: what is not drawn is black."""
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0" * 6
    return b"GIF89a" + screen + b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\0\x3b"


@dataclass
class Asked:
    """One request that came."""

    path: str
    headers: dict[str, str]


@dataclass
class MediaServer:
    """A running server. `answers`: what it does for a path; any other gets the picture."""

    port: int
    scheme: str
    asked: list[Asked] = field(default_factory=list)
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)

    def url(self, path: str = "/a.png", host: str = "127.0.0.1") -> str:
        """An address of it."""
        return f"{self.scheme}://{host}:{self.port}{path}"


def answer(
    handler: BaseHTTPRequestHandler, body: bytes, kind: str | None = "image/png", status: int = 200, **headers: str
) -> None:
    """Send one answer."""
    handler.send_response(status)
    if kind is not None:
        handler.send_header("content-type", kind)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _picture(handler: BaseHTTPRequestHandler) -> None:
    answer(handler, png())


@contextmanager
def media_server(context: SSLContext | None = None) -> Iterator[MediaServer]:
    """A server on a free port of this machine, for the length of the block. context: it speaks TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}))
            found.answers.get(self.path, _picture)(self)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        found = MediaServer(server.server_address[1], "http" if context is None else "https")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
