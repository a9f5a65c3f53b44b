"""What the front door says of a request that it passes on: the model that it means, and what limits its client.

A name may mean another model on another node, and the client's key is known to the front door alone. So the model goes
along by its id, and with it the rules of the key, but not the key.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from starlette.types import Scope as AsgiScope

from supervisor.core.cluster.messages import ModelName
from supervisor.core.requests.keys import Key, KeyRules
from supervisor.core.requests.passed import Heard, PassedKey, Tally
from supervisor.core.requests.scopes import Scope
from supervisor.core.text.foreignjson import NotJson, typed
from supervisor.errors import InvalidRequest

PASSED: Final = "x-supervisor-passed"
"""The header that says it, as JSON."""

_TOKENS: Final = msgspec.Meta(ge=-(1 << 53), le=1 << 53)


class PassedRules(msgspec.Struct, frozen=True):
    """What limits a client.

    Attributes:
        name: of the key.
        ticket: by which the front door asks what the request has taken.
        some: it sees some models, not all.
        since, heard: what the front door has heard of what the key has taken here (`Heard`).
        left: tokens of its budget. minute: tokens a minute; minute_left: those that are left of them now.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(max_length=len(Scope))]
    ticket: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    since: Annotated[str, msgspec.Meta(max_length=64)] = ""
    heard: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    some: bool = False
    left: Annotated[int, _TOKENS] | None = None
    minute: Annotated[int, msgspec.Meta(ge=1, le=1 << 53)] | None = None
    minute_left: Annotated[float, _TOKENS] | None = None

    def key(self, model: str, node: str, tally: Tally) -> PassedKey:
        """Return what limits a request here. node: that passes it on. tally: of all requests with that key."""
        rules = KeyRules(
            f"{self.name}@{node}",
            frozenset(self.scopes),
            models=(model,) if self.some else (),
            tokens_per_minute=self.minute,
            token_budget=self.left,
        )
        return PassedKey(rules, tally, self.heard, self.minute_left)


class Passed(msgspec.Struct, frozen=True):
    """A request that is passed on. model: the id of the model that it means. rules: None: nothing limits its client."""

    model: ModelName
    rules: PassedRules | None = None

    def text(self) -> str:
        """Return it as the header's value."""
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":"))


def passed_of(model: str, key: Key | None, ticket: str, heard: Callable[[str], Heard], now: float) -> Passed:
    """Return what is said of a client's request.

    key: its own, where one limits it. heard: what has been heard of a key, by name. now: seconds since 1970.
    """
    if key is None:
        return Passed(model)
    known, rules, (left, minute_left) = heard(key.rules.name), key.rules, key.left(now)
    some, scopes = bool(rules.models), tuple(sorted(rules.scopes))
    return Passed(
        model,
        PassedRules(
            *(rules.name, scopes, ticket, known.since, known.tokens),
            *(some, left, rules.tokens_per_minute, minute_left),
        ),
    )


def read_passed(scope: AsgiScope) -> Passed | None:
    """Return what another node says of a request; None where it says nothing. Raises InvalidRequest."""
    name = PASSED.encode()
    said = next((value for key, value in scope["headers"] if key == name), None)
    try:
        return None if said is None else typed(said, Passed)
    except NotJson as error:
        raise InvalidRequest(f"What is said of the request that is passed on cannot be read: {error}.") from None
