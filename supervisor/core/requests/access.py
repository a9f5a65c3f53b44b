"""Decide who may talk to the daemon. The decision is `check`, a plain function; `api/guard.py` enforces it.

Rule 1: on loopback, without keys, the Host header must name a loopback host: a page that resolves its own name to
        127.0.0.1 (DNS rebinding) is turned away.
Rule 2: a browser's request must come from an allowed origin: the daemon's own, or one of the configuration. That holds
        with a right key too, because a browser may hold the key. `*` in the configuration means pages of every origin,
        but only where a model answers; what manages models needs the origin's name.
Rule 3: where there are keys, everything but reading /health needs one, whatever the method (`admission.py`).

A preflight is a browser's question whether it may ask. It carries no key, so the guard answers it by itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

from supervisor.core.requests.keys import digest_of
from supervisor.core.routes import DOORS, SERVED
from supervisor.errors import HostNotAllowed, OriginNotAllowed, RequestError

EVERY_PAGE: Final = "*"
"""In `allowed_origins`: pages of every origin."""

_SEVERAL: Final = 2
_MODELS: Final = "/v1/models/"
_ALSO_MANAGING: Final = frozenset(row.path for row in DOORS)  # they say how long a model stays, and unload it
_ANSWERING: Final = frozenset({"/health", "/v1/models"})


@dataclass(frozen=True)
class AccessRules:
    """The rules that the guard enforces."""

    api_keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()  # besides loopback names
    allowed_origins: tuple[str, ...] = ()
    check_host: bool = True  # off where the daemon listens on a public address and asks for a key
    any_address: bool = False  # a public listener without keys: an address in Host is no rebound name

    def at(self, path: str) -> AccessRules:
        """Return the rules of one path: where something is managed, `*` stands for no page, only a name for its own."""
        return self if EVERY_PAGE not in self.allowed_origins or is_for_every_page(path) else self._named

    @cached_property
    def _named(self) -> AccessRules:
        return replace(self, allowed_origins=tuple(one for one in self.allowed_origins if one != EVERY_PAGE))

    @cached_property
    def digests(self) -> frozenset[bytes]:
        """Of the keys."""
        return frozenset(digest_of(key.encode()) for key in self.api_keys)


Place: TypeAlias = tuple[str | None, int | None]
"""An address and a port of this machine; None for any address."""


@dataclass(frozen=True)
class RulesByAddress:
    """The rules for those who come to one of several addresses.

    Attributes:
        main: of the main address. others: of every address that is listened on.
    """

    main: AccessRules
    others: Mapping[Place, AccessRules]

    def at(self, place: Place | None) -> AccessRules:
        """Return the rules of the address at which a connection has arrived; the main ones where it is not known."""
        if place is None or len(self.others) < _SEVERAL:
            return self.main
        return self.others.get(place) or self.others.get((None, place[1])) or self.main


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Return True for `localhost` and for addresses of this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check(rules: AccessRules, headers: Mapping[str, str]) -> RequestError | None:
    """Return the reason to turn a request away before its key is looked at, or None. Header names are in lower case."""
    host = headers.get("host", "")
    if rules.check_host and not _host_allowed(rules, host):
        return HostNotAllowed(
            f"This daemon does not answer for the host '{host}'. "
            "Use its address, or add the name to server.allowed_hosts."
        )
    origin = headers.get("origin")
    if origin is not None and not origin_allowed(rules, origin, host):
        return OriginNotAllowed(
            f"Pages of '{origin}' may not use this daemon. Add the origin to server.allowed_origins to allow it."
        )
    if origin is None and headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        return OriginNotAllowed("Pages of other sites may not use this daemon.")
    return None


def is_for_every_page(path: str) -> bool:
    """Return whether a path only answers: a model's answers, the list of models, and whether the daemon lives."""
    plain = path.rstrip("/")
    answers = plain in SERVED and plain not in _ALSO_MANAGING
    return answers or plain in _ANSWERING or plain.startswith(_MODELS)


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Return True for a CORS preflight, which is for the guard alone.

    Any other `OPTIONS` is a request like all others.
    """
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def origin_allowed(rules: AccessRules, origin: str, host: str) -> bool:
    """Return True for the daemon's own origin and the configured ones."""
    return (
        EVERY_PAGE in rules.allowed_origins
        or origin in rules.allowed_origins
        or origin in {f"http://{host}", f"https://{host}"}
    )


def _host_allowed(rules: AccessRules, host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if rules.any_address and _is_address(name):
        return True
    return is_loopback(name.lower()) or name.lower() in rules.allowed_hosts


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
