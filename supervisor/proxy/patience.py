"""How long a request waits for its engine at most: the client's own deadline, in a header."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.types import Scope

from supervisor.errors import DeadlinePassed, InvalidRequest
from supervisor.proxy.bodies import header

_HEADER: Final = "x-request-timeout"
_LONGEST_S: Final = 86_400.0
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Patience:
    """A client's patience. seconds: as it said them. until: on the loop's clock."""

    seconds: float
    until: float

    @classmethod
    def of(cls, scope: Scope) -> Patience | None:
        """Return what the header says; None where there is none. Raise InvalidRequest."""
        said = header(scope, _HEADER.encode())
        if not said:
            return None
        try:
            seconds = float(said)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= _LONGEST_S:
            raise InvalidRequest(f"{_HEADER} must be seconds, more than 0 and at most {_LONGEST_S:.0f}.")
        return cls(seconds, asyncio.get_running_loop().time() + seconds)

    async def while_it_lasts(self, wait: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return what is waited for. Raise DeadlinePassed where it does not come in time."""
        try:
            async with asyncio.timeout_at(self.until) as limit:
                return await wait()
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlinePassed(
                f"The request had no engine after {self.seconds:g} s, for which it was to wait ({_HEADER})."
            ) from None
