"""Let a request in by its key, or say why not.

A key comes as `Authorization: Bearer KEY` or `x-api-key: KEY`; of both the first counts. Nothing else is looked at: an
address, which logs and pages keep, is no place for a key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from supervisor.core.requests.browsers import DASHBOARD, wants_page
from supervisor.core.requests.keys import Key, Keyring, digest_of
from supervisor.core.requests.scopes import Scope, needed
from supervisor.errors import RouteNotFound, Unauthorized

RawHeaders = Iterable[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""

_READS = frozenset({"GET", "HEAD"})


def admit(
    ring: Keyring, configured: Collection[bytes], call: tuple[str, str], headers: RawHeaders, now: float
) -> Key | None:
    """Return the key that a request has come with; None where nothing limits it.

    Args:
        ring: the keys that were added.
        configured: digests of the keys of the configuration, which may do everything.
        call: method and path.
        headers: see RawHeaders.
        now: seconds since 1970.

    Raises Unauthorized, KeyExpired, Forbidden, RateLimited, BudgetSpent, and RouteNotFound for a path that is in no
    row, where the key may not manage.
    """
    if not (configured or ring.asks) or is_open(call, headers):
        return None
    given = credential(headers)
    digest = None if given is None else digest_of(given)
    if digest is None or digest not in configured:
        key = None if digest is None else ring.find(digest)
        if key is None:
            raise Unauthorized("Give a valid API key: `Authorization: Bearer KEY`.")
        _enter(key, call, now)
        return key
    return None


def is_open(call: tuple[str, str], headers: RawHeaders) -> bool:
    """Return whether a request needs no key, whatever keys there are.

    These are whether the daemon lives, the files of the dashboard, which are the same everywhere, and a browser's
    question at the front door, which is sent to the dashboard.
    """
    method, path = call
    if method not in _READS:
        return False
    if path == "/":
        return wants_page(headers)
    return path in {"/health", DASHBOARD} or path.startswith(f"{DASHBOARD}/")


def _enter(key: Key, call: tuple[str, str], now: float) -> None:
    row = needed(*call)
    ended = key.ended(now)
    if ended is None and row.path == "*" and Scope.MANAGE not in key.rules.scopes:
        raise RouteNotFound(f"There is no {call[0]} {call[1]}; see /docs.")
    refusal = ended or key.enter(row, now)
    if refusal is not None:
        raise refusal


def credential(headers: RawHeaders) -> bytes | None:
    """Return the key in the headers, without the spaces around it; None where there is none.

    Raise Unauthorized where a header is there twice with different values: a proxy before us may have read the other.
    """
    bearer = plain = None
    for name, value in headers:
        if name == b"authorization":
            scheme, _, rest = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                bearer = _one(bearer, rest.strip())
        elif name == b"x-api-key":
            plain = _one(plain, value.strip())
    return bearer or plain or None


def _one(before: bytes | None, value: bytes) -> bytes:
    if before is not None and before != value:
        raise Unauthorized("The request has two different API keys; give one.")
    return value
