"""Hear a request and its answer for whoever captures them, where the rules want that; the others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.types import Message, Scope

from supervisor.core.history.records import Finished
from supervisor.core.requests.captured import FILES, TEXTS, CaptureRules, Heard
from supervisor.core.text.foreignjson import written
from supervisor.proxy.account import Account
from supervisor.proxy.asgi import Responder
from supervisor.proxy.bodies import ClientJson

_MOST_HEARD: Final = 4 << 20  # bytes of one answer; a stream has many for each token


class Keeper(Protocol):
    """Who keeps what was heard. It has room for so many bytes."""

    def take(self, size: int) -> bool:
        """Take up room; return False where there is none."""
        ...

    def keep(self, heard: Heard, size: int) -> None:
        """Keep a request whose room was taken; must return at once."""
        ...


@dataclass(frozen=True)
class Capturing:
    """The capture of requests. rules: as they are at the moment."""

    rules: Callable[[], CaptureRules]
    keeper: Keeper

    async def begin(self, scope: Scope, account: Account, body: ClientJson, responder: Responder) -> None:
        """Hear a request, if it is to be captured: its model and its key are known."""
        key = None if account.key is None else account.key.rules.name
        if account.model is None or not self.rules().wants(account.model, key):
            return
        asked, left_out = await _asked(body)
        if not self.keeper.take(len(asked)):
            return
        tape = _Tape(self.keeper, scope, asked, left_out)
        responder.heard_by(tape.hear)
        account.follow(tape.end)


async def _asked(body: ClientJson) -> tuple[bytes, tuple[str, ...]]:
    """Return a request as JSON, and what is left out of it."""
    if body.is_form:
        return body.text, (FILES,)
    if body.is_whole:
        return body.text, ()
    return await body.work(lambda: written(body.heads(body.fields))), (TEXTS,)


class _Tape:
    """What is heard of one request."""

    def __init__(self, keeper: Keeper, scope: Scope, asked: bytes, left_out: tuple[str, ...]) -> None:
        self._keeper = keeper
        self._headers = scope["headers"]
        self._asked = asked
        self._left_out = left_out
        self._answer = bytearray()
        self._cut = False
        self._kind = ""

    def hear(self, message: Message) -> None:
        """Take in a part of the answer."""
        if message["type"] == "http.response.start":
            kinds = [value for name, value in message["headers"] if name == b"content-type"]
            self._kind = kinds[0].decode("latin-1") if kinds else ""
            return
        piece = message.get("body", b"")
        if self._cut or not piece:
            return
        self._cut = len(self._answer) + len(piece) > _MOST_HEARD or not self._keeper.take(len(piece))
        if not self._cut:
            self._answer += piece

    def end(self, record: Finished) -> None:
        """Hand over what was heard."""
        heard = Heard(
            *(record, self._headers, self._asked, self._left_out),
            *(bytes(self._answer), self._cut, self._kind),
        )
        self._keeper.keep(heard, len(self._asked) + len(self._answer))
