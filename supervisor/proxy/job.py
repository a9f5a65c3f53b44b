"""A relayed request on its way to an engine, and what becomes of its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from supervisor.core.recovery.raw import COMPLETION_PATH
from supervisor.core.stream.apis import RESPONSES, Api
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.stream.fold import StreamFold
from supervisor.core.stream.outgoing import OutgoingRequest
from supervisor.core.stream.responses import answer_id
from supervisor.core.text.foreignjson import escaped
from supervisor.core.text.members import set_fields
from supervisor.engines.client import EngineClient, EngineRequest, Payload
from supervisor.pool.inflight import InflightRequest
from supervisor.pool.pool import Lease
from supervisor.proxy.account import Account
from supervisor.proxy.answers import Filter, StreamBroken
from supervisor.proxy.bodies import JSON, ClientJson
from supervisor.proxy.shortening import Shortening
from supervisor.proxy.timelimit import Limit
from supervisor.proxy.toolcalls import Prepared


@dataclass(slots=True)
class Job:
    """A request on its way to an engine.

    filtered: the way of the answer's bytes in the present try; relayed: its first part, which sees the engine's.
    folding: what becomes of them for a client that wants one object; limit: of its time; has_kept: something of an
    earlier try is in it; shortening: of a conversation that is too long.
    """

    request: InflightRequest
    acquire: Callable[[], Awaitable[Lease]]
    plan: OutgoingRequest
    prepared: Prepared
    body: ClientJson
    api: Api
    account: Account
    limit: Limit | None = None
    relayed: StreamFilter | None = None
    filtered: Filter | None = None
    folding: StreamFold | None = None
    has_kept: bool = False
    shortening: Shortening | None = None

    async def question(self, client: EngineClient) -> tuple[str, Payload]:
        """Return path and body of the request to the engine."""
        prepared, way = self.prepared, self.prepared.way
        changed = await way.changed(client)
        raw = await way.raw_payload(client, changed) if way.raw else None
        if self.limit is not None:
            path = prepared.path if raw is None else COMPLETION_PATH
            self.limit.begin(path, {**prepared.asked, **self.plan.changes, **prepared.needs})
        if raw is not None:
            return COMPLETION_PATH, raw
        return prepared.path, await self.body.work(partial(self._payload, changed))

    def sent(self, client: EngineClient, path: str, payload: Payload) -> EngineRequest:
        """Return the request to the engine."""
        kind, more = self.body.content_type, self.account.passes_on
        return client.post(path, payload, more) if kind == JSON else client.send("POST", path, payload, kind, more)

    def _payload(self, changed: Mapping[str, object] | None) -> Payload:
        changes = {**self.plan.changes, **self.prepared.needs}
        if changed is not None:
            return self.body.payload(escaped({**changed, **changes}))
        return self.body.payload(set_fields(self.prepared.body, changes))

    @property
    def heard(self) -> Callable[[bytes], bool] | None:
        """Take from the first events the answer's id, by which the client may end it; None: it may not."""
        return self._note_answer if self.api is RESPONSES else None

    def _note_answer(self, events: bytes) -> bool:
        self.request.is_known_as(answer_id(events))
        return self.request.answer is not None

    def new_filter(self) -> Filter:
        """Return the way of the bytes of the next try's answer."""
        way = self.prepared.way
        self.relayed = way.stream_filter(self.api, drop_progress=self.plan.drop_progress)
        self.filtered = way.stream(self.relayed)
        return self.filtered

    def unframed(self) -> Filter:
        """Return the present try's filter for an answer that ends with its connection."""
        assert self.relayed is not None  # the try has begun
        assert self.filtered is not None
        self.filtered = self.prepared.way.unframed(self.relayed, self.filtered)
        return self.filtered

    @property
    def refused(self) -> tuple[int, str] | None:
        """The status and the code of the engine's error within a stream."""
        return (200, self.relayed.code) if self.relayed is not None and self.relayed.code else None

    def broken_by(self, error: Exception) -> str:
        """Return the engine's message where its answer ended because its device failed."""
        said = error.said if isinstance(error, StreamBroken) else ""
        return said or ("" if self.relayed is None else self.relayed.broken)
