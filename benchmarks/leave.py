"""How long an engine works on for a client that has left: from closing the connection until the slot is free."""

from __future__ import annotations

import http.client
import json
import socket
import time

from benchmarks.load import Place
from benchmarks.servers import Server

_LIMIT_S = 5.0  # a slot that is not free by then is reported with this time
_LOOK_EVERY_S = 0.002


def freed_after(server: Server, *, stream: bool) -> float:
    """Seconds until the engine behind the server has freed the slot of a client that left in mid-answer."""
    body = {"model": server.place.model, "stream": stream, "max_tokens": 30_000}
    payload = json.dumps({**body, "messages": [{"role": "user", "content": "endless"}]}).encode()
    with _connected(server.place) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(payload)}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + payload)
        _wait(server.engine, busy=1)
    began = time.perf_counter()
    _wait(server.engine, busy=0)
    taken = time.perf_counter() - began
    _wait(server.engine, busy=0, limit=60.0)  # the next one starts on an engine that does nothing
    return taken


def _wait(engine: Place, *, busy: int, limit: float = _LIMIT_S) -> None:
    until = time.perf_counter() + limit
    while _busy(engine) != busy and time.perf_counter() < until:
        time.sleep(_LOOK_EVERY_S)


def _busy(engine: Place) -> int:
    with _connected(engine) as connection:
        connection.sendall(b"GET /slots HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        return sum(bool(slot["is_processing"]) for slot in json.loads(response.read()))


def _connected(place: Place) -> socket.socket:
    if place.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(place.socket)
        return connection
    return socket.create_connection(("127.0.0.1", place.port))
