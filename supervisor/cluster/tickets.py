"""What requests of other nodes' clients have taken here: a front door asks for it where a key pays for its tokens.

No key of a client travels. The front door makes up a ticket for such a request, and asks for its figures afterwards.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from supervisor.core.history.records import Spent
from supervisor.core.requests.keys import Usage
from supervisor.core.requests.passed import Tally
from supervisor.proxy.account import Account

_MOST: Final = 4096
_WAIT_S: Final = 4.0


@dataclass(slots=True)
class _Ticket:
    """A request. asked: the front door has asked, in vain. tally: of its key."""

    usage: asyncio.Future[Usage]
    tally: Tally | None = None
    asked: bool = False

    def told(self) -> None:
        """Note that the front door knows of it."""
        if self.tally is not None and self.usage.done():
            self.tally.tell(self.usage.result().tokens)


class Tickets:
    """The newest tickets, and what their requests have taken; and what the keys have taken that used some lately."""

    def __init__(self) -> None:
        self._tickets: OrderedDict[str, _Ticket] = OrderedDict()
        self._tallies: OrderedDict[tuple[str, str], Tally] = OrderedDict()

    def tally(self, node: str, key: str) -> Tally:
        """Return what one key of a node has taken here."""
        found = self._tallies.setdefault((node, key), Tally())
        self._tallies.move_to_end((node, key))
        while len(self._tallies) > _MOST:
            self._tallies.popitem(last=False)
        return found

    def ended(self, ticket: str, tally: Tally, usage: Usage) -> None:
        """Note that a request has ended, and what it has taken."""
        found = self._of(ticket)
        found.tally = tally
        if not found.usage.done():
            found.usage.set_result(usage)
        if found.asked:
            self._forget(ticket)

    async def spent(self, ticket: str) -> dict[str, int]:
        """Return prompt and completion tokens of a request, once it has ended; 0 where nothing is known of it."""
        found = self._of(ticket)
        try:
            async with asyncio.timeout(_WAIT_S):
                usage = await asyncio.shield(found.usage)
        except TimeoutError:
            usage, found.asked = Usage(), True
        else:
            self._forget(ticket)
        return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}

    @staticmethod
    def take(said: Any, account: Account) -> None:
        """Count what another node says of an account's request."""
        known: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
        prompt, completion = (_count(known.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        account.spent(Spent(prompt_tokens=prompt or None, completion_tokens=completion or None))
        if account.key is not None:
            account.key.spend(prompt, completion)

    def _of(self, ticket: str) -> _Ticket:
        found = self._tickets.get(ticket)
        if found is None:
            found = self._tickets[ticket] = _Ticket(asyncio.get_running_loop().create_future())
            while len(self._tickets) > _MOST:
                self._forget(next(iter(self._tickets)))
        return found

    def _forget(self, ticket: str) -> None:
        if (found := self._tickets.pop(ticket, None)) is not None:
            found.told()


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else 0
