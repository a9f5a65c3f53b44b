"""The key of a request on its way through the relay: what it may see, and what it has used when the answer ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """An answer whose tokens nobody counts."""

    def hears(self, upstream: EngineResponse) -> EngineResponse:
        """Return the answer as it is."""
        return upstream


class Metered(Unmetered):
    """An answer whose tokens are counted."""

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self.meter: Meter | TailMeter = Meter()

    def hears(self, upstream: EngineResponse) -> EngineResponse:
        """Return the answer, which is counted while it is read."""
        if upstream.content_type == "text/event-stream" and not self._several:
            self.meter = TailMeter()
        return upstream.heard_by(self.meter.hear)


UNMETERED: Final = Unmetered()
"""The answers of requests that nothing limits."""


@contextmanager
def metered(key: Key | None, asked: Mapping[str, object] | None = None) -> Iterator[Unmetered]:
    """Count what an answer within the block uses, however the block ends; `asked`: what the request says, if known."""
    if key is None:
        yield UNMETERED
        return
    one = asked is not None and is_one(asked.get("n")) and not isinstance(asked.get("prompt"), list)
    counted = Metered(several=not one)
    try:
        yield counted
    finally:
        key.spend(*counted.meter.tokens())


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
