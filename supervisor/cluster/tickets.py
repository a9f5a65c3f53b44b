"""What requests of other nodes' clients have taken here: a front door asks for it where a key pays for its tokens.

No key of a client travels. The front door makes up a ticket for such a request, and asks for its figures afterwards.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.types import Scope

from supervisor.core.history.records import Finished, Spent
from supervisor.proxy.account import Account

TICKET: Final = "x-supervisor-ticket"
"""The header with a ticket."""

_MOST: Final = 4096
_WAIT_S: Final = 4.0


class Tickets:
    """The newest tickets, and what their requests have taken."""

    def __init__(self) -> None:
        self._spent: OrderedDict[str, asyncio.Future[Spent]] = OrderedDict()

    def follow(self, scope: Scope, account: Account) -> None:
        """Note what a request takes, where it has a ticket."""
        wanted = TICKET.encode()
        ticket = next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)
        if ticket is not None and len(ticket) <= 64:
            account.follow(partial(self._ended, self._of(ticket)))

    async def spent(self, ticket: str) -> dict[str, int | None]:
        """Return prompt and completion tokens of a request, once it has ended; null where nothing is known of it."""
        try:
            async with asyncio.timeout(_WAIT_S):
                found = await asyncio.shield(self._of(ticket))
        except TimeoutError:
            found = Spent()
        self._spent.pop(ticket, None)
        return {"prompt_tokens": found.prompt_tokens, "completion_tokens": found.completion_tokens}

    @staticmethod
    def take(said: Any, account: Account) -> None:
        """Count what another node says of an account's request."""
        known: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
        prompt, completion = (_count(known.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        account.spent(Spent(prompt_tokens=prompt, completion_tokens=completion))
        if account.key is not None:
            account.key.spend(prompt or 0, completion or 0)

    def _of(self, ticket: str) -> asyncio.Future[Spent]:
        found = self._spent.get(ticket)
        if found is None:
            found = self._spent[ticket] = asyncio.get_running_loop().create_future()
            while len(self._spent) > _MOST:
                self._spent.popitem(last=False)
        return found

    @staticmethod
    def _ended(waiting: asyncio.Future[Spent], record: Finished) -> None:
        if not waiting.done():
            waiting.set_result(record.spent)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else None
