"""The key of a request on its way through the relay: what it may see, and what it has used when the answer ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from starlette.types import Scope

from supervisor.core.requests.keys import Key
from supervisor.core.requests.scopes import needed_of_engine
from supervisor.core.routes import makes_vectors
from supervisor.core.stream.chat import asks_for_one
from supervisor.core.stream.meter import Meter, SoFar, TailMeter
from supervisor.engines.client import EngineResponse
from supervisor.errors import ModelDoesNotFit, SupervisorError
from supervisor.proxy.account import Account

KEY: Final = "supervisor.key"
"""The place of the key in an ASGI scope; not there where nothing limits the request."""


_OK: Final = 200
_BYTES_OF_A_TOKEN: Final = 4  # of a request of whose tokens the engine says nothing


def key_of(scope: Scope) -> Key | None:
    """Return the key that limits a request, if there is one."""
    found: Key | None = scope.get(KEY)
    return found


class Metered:
    """An answer that is counted for an account and its key, however the block ends.

    several: it may have several choices. untold: tokens of its prompt where it tells none.

    Attributes:
        account: the request's.
    """

    __slots__ = ("_first", "_meter", "_several", "_untold", "account")

    def __init__(self, account: Account, *, several: bool, untold: int = 0) -> None:
        self.account = account
        self._several = several
        self._untold = untold
        self._meter: Meter | TailMeter | None = None
        self._first: float | None = None  # when its first token was there

    def __enter__(self) -> Metered:
        return self

    def __exit__(self, *_: object) -> None:
        """Count what was heard."""
        if self._meter is not None:
            spent = self._meter.spent()
            self.account.spent(spent)
            if (key := self.account.key) is not None:
                key.spend(spent.prompt_tokens or self._untold, spent.completion_tokens or 0)

    def hears(self, upstream: EngineResponse, *, native: bool = True) -> EngineResponse:
        """Return the answer, which is counted while it is read; native: it is written as llama-server writes."""
        self.account.answered(upstream.status)
        if upstream.status != _OK:
            self._untold = 0
        whole = self._several or upstream.content_type != "text/event-stream"
        self._meter, self._first = (Meter if whole else TailMeter)(self._begins), None
        hear = self._meter.hear
        return upstream.heard_by(hear if native else lambda piece: hear(_as_llama_server_writes(piece)))

    def so_far(self) -> SoFar:
        """Return what was heard up to now."""
        if self._meter is None:
            return SoFar()
        return SoFar(*self._meter.so_far(), 0.0 if self._first is None else time.perf_counter() - self._first)

    def _begins(self) -> None:
        self._first = time.perf_counter()
        self.account.has_first()


def _as_llama_server_writes(piece: bytes) -> bytes:
    """Return a piece of JSON or events with llama-server's ends of lines, and without spaces behind keys."""
    return piece.replace(b"\r\n", b"\n").replace(b'": ', b'":')


def metered(account: Account, asked: Mapping[str, object] | None = None, path: str = "", size: int = 0) -> Metered:
    """Return the block in which an answer is counted.

    asked: what the request says, if that is known. path: of the engine. size: bytes of the request.
    """
    untold = -(-size // _BYTES_OF_A_TOKEN) if makes_vectors(path) else 0
    one = asked is not None and asks_for_one(asked) and not isinstance(asked.get("prompt"), list)
    return Metered(account, several=not one, untold=untold)


def check_spent(key: Key | None) -> None:
    """Raise RateLimited, BudgetSpent where a key has used its tokens up while its request waited for an engine."""
    refusal = None if key is None else key.may_generate(time.time())
    if refusal is not None:
        raise refusal


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
