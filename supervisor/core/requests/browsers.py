"""Tell from a request's headers whether a browser sent it. Header names are in lower case.

A page can make a browser send a GET to any address: as a picture, a link, a frame. Browsers tell where it comes from
in `Sec-Fetch-Site`, but only to addresses that they trust: this machine's own, and HTTPS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

DASHBOARD: Final = "/ui"
"""The path of the dashboard; its files are below it."""

_TELL_THE_SITE = ("sec-fetch-site", "origin")
_NO_PAGE_CAN_SEND = ("authorization", "x-api-key")  # without asking first


def from_browser(headers: Mapping[str, str]) -> bool:
    """Return True for a browser's request, whatever page it comes from."""
    return headers.get("user-agent", "").startswith("Mozilla/") or any(name in headers for name in _TELL_THE_SITE)


def from_unknown_page(headers: Mapping[str, str]) -> bool:
    """Return True for a browser's request if nothing says that it comes from a page that may make it."""
    return from_browser(headers) and not any(name in headers for name in (*_TELL_THE_SITE, *_NO_PAGE_CAN_SEND))


def wants_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return True for a request that would rather have a page than JSON. Headers are as ASGI has them."""
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def from_ollama(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return True for a request of one of Ollama's own clients."""
    return any(name == b"user-agent" and value.lower().startswith(b"ollama") for name, value in headers)
