"""Requests of other programs' APIs on their way through the relay, and what they wish of their models."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from supervisor.core.doors.names import meant_names
from supervisor.core.doors.raw_stream import RawStream
from supervisor.core.doors.turned import Changed, Continued, RawVoice, Spoken, Telling, Turn, Turned, Wishes
from supervisor.core.models.registry import ModelEntry, Registry
from supervisor.core.recovery.forms import Form
from supervisor.core.requests.keys import Key
from supervisor.core.stream.apis import RAW, Api
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.text.foreignjson import escaped, written
from supervisor.core.text.members import set_fields
from supervisor.errors import InvalidRequest
from supervisor.pool.pool import Lease
from supervisor.proxy.account import Account
from supervisor.proxy.answers import Filter
from supervisor.proxy.asgi import Responder
from supervisor.proxy.bodies import ClientJson
from supervisor.proxy.spoken import Plain
from supervisor.proxy.toolcalls import Prepared, ToolCalls

Acquire: TypeAlias = Callable[[], Awaitable[Lease]]
"""Waits for an engine."""


class Wishing(Protocol):
    """Grants what requests wish of their models."""

    async def before(self, entry: ModelEntry, wishes: Wishes, key: Key | None) -> None:
        """Do what is to be done before an engine is asked for."""
        ...

    def after(self, entry: ModelEntry, key: Key | None) -> None:
        """Unload the model once a request is over that wished it, where nobody else uses it."""
        ...

    def unload(self, entry: ModelEntry, key: Key | None) -> None:
        """Unload the model after its requests. Raise Forbidden where the key may not."""
        ...


class NoWishes:
    """Grants nothing."""

    async def before(self, entry: ModelEntry, wishes: Wishes, key: Key | None) -> None:
        """Do nothing."""

    def after(self, entry: ModelEntry, key: Key | None) -> None:
        """Do nothing."""

    def unload(self, entry: ModelEntry, key: Key | None) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A request that came in by another program's API.

    Attributes:
        body: as the engine's own, with `model` as it is called here.
    """

    turned: Turned
    body: ClientJson
    telling: Telling

    @classmethod
    def of(cls, turn: Turn, body: ClientJson, account: Account, registry: Registry) -> Entered:
        """Return the request, turned. Raise InvalidRequest."""
        if body.opaque:
            raise InvalidRequest("The request has too many small values to be read; send less at once.")
        turned = turn(body.fields, body.whole)
        named = turned.model
        told = named if isinstance(named, str) else ""
        fields = {**turned.fields, "model": meant(named, registry, account.key) if isinstance(named, str) else named}
        telling = Telling(told, time.time, account.elapsed)
        return cls(turned, replace(body, text=escaped(fields), fields=fields), telling)

    @property
    def loads_only(self) -> bool:
        """True if there is nothing to be answered."""
        return self.turned.only is not None

    @property
    def unloads(self) -> bool:
        """True if the model shall go."""
        return self.turned.wishes.keep == 0

    def answer(self) -> Mapping[str, object]:
        """Return the answer to a request that only loads."""
        assert self.turned.only is not None  # it only loads
        return self.turned.only(self.telling)

    def with_defaults(self, body: ClientJson, entry: ModelEntry) -> ClientJson:
        """Return the request with the API's defaults, where neither it nor its model has others."""
        own = entry.requests.sampling
        more = {name: one for name, one in self.turned.defaults.items() if name not in own and name not in body.fields}
        return replace(body, text=set_fields(body.text, more), fields={**body.fields, **more}) if more else body

    def prepared(self, calls: ToolCalls, body: ClientJson, entry: ModelEntry) -> Prepared:
        """Return the request for the engine, and the way of its answer. Raises InvalidRequest."""
        turned, telling = self.turned, self.telling
        match turned.answer:
            case Spoken(spoken):
                form = Form(_as_it_is, lambda asked: spoken(telling), _usage, always=True)
                return calls.prepare(turned.path, body, entry, form)
            case Continued(said):
                return Prepared(turned.path, body.text, body.fields, _Continuation(partial(said, telling)))
            case Changed(change):
                return Prepared(turned.path, body.text, body.fields, _Changing(partial(_told, change, telling)))


async def only_loaded(
    entered: Entered, entry: ModelEntry, wishing: Wishing, acquire: Acquire, ends: tuple[Responder, Account]
) -> None:
    """Answer a request that has nothing to be answered: its model is loaded, or unloaded."""
    responder, account = ends
    if entered.unloads:
        wishing.unload(entry, account.key)
    else:
        (await acquire()).release()
        account.has_engine()
    await responder.whole(200, written(entered.answer()))


@contextmanager
def granted(wishing: Wishing, entry: ModelEntry, entered: Entered | None, key: Key | None) -> Iterator[None]:
    """Grant, behind the block, what a request wishes of its model once it is over."""
    try:
        yield
    finally:
        if entered is not None and entered.unloads and not entered.loads_only:
            wishing.after(entry, key)


def meant(name: str, registry: Registry, key: Key | None = None) -> str:
    """Return the name by which the model is known here that a client means; the plainest where its key sees none."""
    names = list(meant_names(name))
    found = ((one, registry.get(one)) for one in names)
    seen = (one for one, entry in found if entry is not None and (key is None or key.rules.sees(entry.id)))
    return next(seen, names[-1])


def _as_it_is(asked: Mapping[str, object]) -> Mapping[str, object]:
    return asked


def _usage(chat: Mapping[str, object]) -> Mapping[str, object]:
    return {"stream_options": {"include_usage": True}}


def _told(
    change: Callable[[Mapping[str, Any], Telling], Mapping[str, object]],
    telling: Telling,
    answer: Mapping[str, object],
) -> Mapping[str, object]:
    return change(answer, telling)


class _Changing(Plain):
    """A whole answer that is changed; a stream is passed on."""

    rewrites = True

    def __init__(self, change: Callable[[Mapping[str, object]], Mapping[str, object]]) -> None:
        self._change = change

    def answer(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Return an answer that came in one piece, changed."""
        return self._change(body)

    def said(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        """Return a folded answer, changed."""
        return self._change(answer)


class _Continuation(Plain):
    """An answer in the engine's own form of a completion, said in another."""

    rewrites = True

    def __init__(self, new_voice: Callable[[], RawVoice]) -> None:
        self._new_voice = new_voice

    def stream_filter(self, api: Api, *, drop_progress: bool) -> StreamFilter:
        """Return the filter that cuts the bytes of a streamed answer."""
        return StreamFilter(drop_progress=drop_progress, api=RAW)

    def stream(self, relay: StreamFilter) -> Filter:
        """Return the filter of a streamed answer's bytes; a new one for every try."""
        return RawStream(relay, self._new_voice())

    def answer(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Return an answer that came in one piece, in the client's form."""
        return self.said(body)

    def said(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        """Return a folded answer in the client's form."""
        return self._new_voice().whole(answer)
