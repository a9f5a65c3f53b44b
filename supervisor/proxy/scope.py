"""A request as ASGI has it, made of what the parser found; and an answer in one piece, to what is no request."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import Scope


def scope_of(
    parser: Any,
    target: bytes,
    headers: list[tuple[bytes, bytes]],
    address: tuple[str, int] | None,
    scheme: str,
    state: dict[str, Any],
) -> Scope:
    """Return the scope of a request whose head is complete. Raises ValueError where its target has no path.

    Args:
        parser: httptools' parser of requests.
        target: of the request line.
        address: at which the client has arrived.
    """
    url = httptools.parse_url(target)
    if url.path is None:
        raise ValueError("the target has no path")
    path = url.path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": parser.get_http_version(),
        "server": address,
        "scheme": scheme,
        "method": parser.get_method().decode("ascii"),
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": url.path,
        "query_string": url.query or b"",
        "headers": headers,
        "state": state,
    }


def whole_response(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a JSON answer that closes the connection."""
    further = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in further.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
