"""What requests of other nodes' clients have taken here: a front door asks for it where a key pays for its tokens.

No key of a client travels. The front door makes up a ticket for such a request, and asks for its figures afterwards.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from supervisor.core.history.records import Spent
from supervisor.core.requests.keys import Usage
from supervisor.core.requests.passed import Heard, Tally
from supervisor.proxy.account import Account

_K = TypeVar("_K")
_V = TypeVar("_V")
_MOST: Final = 4096
_WAIT_S: Final = 4.0


@dataclass(slots=True)
class _Ticket:
    """A request. asked: the front door has asked, in vain."""

    usage: asyncio.Future[Usage]
    asked: bool = False


class Tickets:
    """The newest tickets, and what their requests have taken; and what the keys have taken that used some lately.

    A front door says with each request how much it has heard of what the key has taken here, so that nothing counts
    twice, and nothing not at all, in whatever order requests and figures arrive.
    """

    def __init__(self) -> None:
        self._tickets: OrderedDict[str, _Ticket] = OrderedDict()
        self._tallies: OrderedDict[tuple[str, str, str], Tally] = OrderedDict()
        self._heard: OrderedDict[tuple[str, str], Heard] = OrderedDict()

    # of other nodes' requests here

    def tally(self, node: str, key: str, heard: Heard) -> Tally:
        """Return what one key of a node has taken here, at least what that node has heard of."""
        found = _newest(self._tallies, (node, key, heard.since), Tally)
        found.at_least(heard.tokens)
        return found

    def ended(self, ticket: str, usage: Usage) -> None:
        """Note that a request has ended, and what it has taken."""
        found = self._of(ticket)
        if not found.usage.done():
            found.usage.set_result(usage)
        if found.asked:
            self._tickets.pop(ticket, None)

    async def spent(self, ticket: str) -> dict[str, int | bool]:
        """Return prompt and completion tokens of a request, once it has ended; `late` where it does not in time."""
        found = self._of(ticket)
        try:
            async with asyncio.timeout(_WAIT_S):
                usage = await asyncio.shield(found.usage)
        except TimeoutError:
            found.asked = True
            return {"prompt_tokens": 0, "completion_tokens": 0, "late": True}
        self._tickets.pop(ticket, None)
        return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}

    # of requests of this node elsewhere

    def heard(self, node: str, key: str) -> Heard:
        """Return what this node has heard of what a key of it has taken at another one."""
        return _newest(self._heard, (node, key), lambda: Heard(secrets.token_hex(8)))

    def take(self, said: Any, node: str, account: Account) -> None:
        """Count what another node says of an account's request."""
        known: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
        prompt, completion = (_count(known.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        account.spent(Spent(prompt_tokens=prompt or None, completion_tokens=completion or None))
        if (key := account.key) is None:
            return
        key.spend(prompt, completion)
        if known.get("late"):
            self.missed(node, key.rules.name)
        else:
            before = self.heard(node, key.rules.name)
            self._heard[node, key.rules.name] = replace(before, tokens=before.tokens + prompt + completion)

    def missed(self, node: str, key: str) -> None:
        """Note that what a request has taken may not be heard of any more: that node need not wait for it."""
        self._heard.pop((node, key), None)

    def _of(self, ticket: str) -> _Ticket:
        return _newest(self._tickets, ticket, lambda: _Ticket(asyncio.get_running_loop().create_future()))


def _newest(found: OrderedDict[_K, _V], key: _K, new: Callable[[], _V]) -> _V:
    """Return what stands at a key, or what is new; the oldest goes where there are too many."""
    if key not in found:
        found[key] = new()
    found.move_to_end(key)
    while len(found) > _MOST:
        found.popitem(last=False)
    return found[key]


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else 0
