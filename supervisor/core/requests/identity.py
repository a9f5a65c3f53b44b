"""Choose the id of a request: a client's own where it is fit to be repeated, else ours.

The id stands in a header, in lines of the log, in JSON and in the path that cancels the request. So it has only
characters that none of these escapes, and a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from supervisor.core.routes import api_of

HEADER: Final = b"x-request-id"
"""The header that carries the id, both ways."""

MOST: Final = 128
"""Characters of an id."""

_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:+=@~-]{0,%d}" % (MOST - 1))


def given_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the id that a client gave its request; None without exactly one that is well formed.

    headers: names in lower case.
    """
    found = [value for name, value in headers if name == HEADER]
    if len(found) != 1 or not _WELL_FORMED.fullmatch(found[0]):
        return None
    return found[0].decode("ascii")


def naming(request_id: str, path: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that name a request in its response: `x-request-id`, and that of the path's own API."""
    name, own = request_id.encode("ascii"), api_of(path).id_header
    return [(HEADER, name)] if own is None else [(HEADER, name), (own, name)]
