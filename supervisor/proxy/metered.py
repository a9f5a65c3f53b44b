"""The key of a request on its way through the relay: what it may see, and what it has used when the answer ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from starlette.types import Scope

from supervisor.core.requests.keys import Key
from supervisor.core.requests.scopes import needed_of_engine
from supervisor.core.stream.chat import is_one
from supervisor.core.stream.meter import Meter, TailMeter
from supervisor.engines.client import EngineResponse
from supervisor.errors import ModelDoesNotFit, SupervisorError

KEY: Final = "supervisor.key"
"""The place of the key in an ASGI scope; not there where nothing limits the request."""


def key_of(scope: Scope) -> Key | None:
    """Return the key that limits a request, if there is one."""
    found: Key | None = scope.get(KEY)
    return found


class Unmetered:
    """An answer within a block whose tokens nobody counts."""

    __slots__ = ()

    def __enter__(self) -> Unmetered:
        return self

    def __exit__(self, *_: object) -> None:
        """Count nothing."""

    def hears(self, upstream: EngineResponse) -> EngineResponse:
        """Return the answer as it is."""
        return upstream


class Metered(Unmetered):
    """An answer whose tokens are counted for a key, however the block ends; `several`: it may have several choices."""

    __slots__ = ("_key", "_meter", "_several")

    def __init__(self, key: Key, *, several: bool) -> None:
        self._key = key
        self._several = several
        self._meter: Meter | TailMeter | None = None

    def __exit__(self, *_: object) -> None:
        """Count what was heard."""
        if self._meter is not None:
            self._key.spend(*self._meter.tokens())

    def hears(self, upstream: EngineResponse) -> EngineResponse:
        """Return the answer, which is counted while it is read."""
        whole = self._several or upstream.content_type != "text/event-stream"
        self._meter = Meter() if whole else TailMeter()
        return upstream.heard_by(self._meter.hear)


UNMETERED: Final = Unmetered()
"""The answers of requests that nothing limits."""


def metered(key: Key | None, asked: Mapping[str, object] | None = None) -> Unmetered:
    """Return the block in which an answer is counted for a key; `asked`: what the request says, if that is known."""
    if key is None:
        return UNMETERED
    one = asked is not None and is_one(asked.get("n")) and not isinstance(asked.get("prompt"), list)
    return Metered(key, several=not one)


def check_key(key: Key | None, method: str, path: str) -> None:
    """Raise what a key may not ask of an engine below UPSTREAM: Forbidden, RateLimited, BudgetSpent."""
    if key is not None:
        row = needed_of_engine(method, path)
        refusal = key.may(row) or (key.may_generate(time.time()) if row.generates else None)
        if refusal is not None:
            raise refusal


def told(key: Key | None, error: SupervisorError) -> SupervisorError:
    """Return the error as the key's holder is told it: why there is no room names models that others use."""
    if key is None or not key.rules.models or error.code != ModelDoesNotFit.code:
        return error
    return ModelDoesNotFit(NO_ROOM)


NO_ROOM: Final = "The machine has no room for the model now. Ask whoever manages it."
"""Why a model does not fit, for who does not see all models."""
