"""The store of a cluster: NATS with JetStream's key-value buckets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, get_args

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error, NoServersError
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NoKeysError, NotFoundError
from nats.js.kv import KeyValue

from supervisor.cluster.kept import Server
from supervisor.cluster.store import MOST_VERSIONS, Bucket, Entry, StoreUnavailable
from supervisor.core.cluster.directory import CLAIM_S
from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.messages import MOST_BYTES, MOST_CONFIG_BYTES
from supervisor.core.cluster.natsconfig import LOADS, inbox_of
from supervisor.core.cluster.trust import Trust

_Result = TypeVar("_Result")

_log = structlog.get_logger()

_ANSWER_S: Final = 3.0
_AGAIN_S: Final = 0.5
_PING_S: Final = 2
_BUCKETS: Final[tuple[Bucket, ...]] = get_args(Bucket)
_MOST_STORED: Final = 64 << 20
_MOST_CONFIGS: Final = (MOST_VERSIONS + 1) * MOST_CONFIG_BYTES + (1 << 20)


class _Client(Client):
    """nats-py's client, but for what it makes of messages and servers that are not as they should be."""

    async def _attempt_reconnect(self) -> None:
        """Connect anew at once: nats-py would first wait, for half a minute, for a server that stands still to end
        TLS, and meanwhile claims end.
        """
        if (writer := getattr(self._transport, "_io_writer", None)) is not None:
            writer.transport.abort()
        await super()._attempt_reconnect()

    async def _process_headers(self, headers: Any) -> Any:
        """Return the headers of a message; none where they are none, as another node may have written them.

        nats-py would break off, connect anew, and meet the same message for ever.
        """
        try:
            return await super()._process_headers(headers)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with them
            _log.debug("cluster_headers_not_understood", reason=str(error))
            return None


class NatsStore:
    """A connection to the store, which is made anew whenever it breaks.

    Args:
        servers: addresses. tls: how they are dialled. own: this node.
        changed: called with True once it is connected, again after each break, and with False when it breaks.

    Attributes:
        refused: its servers do not let this node in.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        tls: ssl.SSLContext,
        own: Peer,
        changed: Callable[[bool], None],
    ) -> None:
        self._urls = [f"tls://{_in_url(one.host)}:{one.port}" for one in servers]
        self._tls = tls
        self._own = own
        self._changed = changed
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._buckets: dict[Bucket, KeyValue] = {}
        self._answers = True
        self._trust = Trust()
        self.refused = False
        self._said = ""
        self._followed: dict[Bucket, tuple[KeyValue.KeyWatcher, asyncio.Task[None]]] = {}
        self._listening: Subscription | None = None
        self._watching: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Connect, trying until it can be done, and again whenever that has come to an end."""
        await self._dial()
        self._watching.add(asyncio.ensure_future(self._keep_asking()))

    async def _dial(self) -> None:
        client: Client | None = None
        while client is None:
            try:
                made = _Client()
                await made.connect(
                    servers=random.sample(self._urls, len(self._urls)),
                    dont_randomize=True,  # the next one is never the one that was left
                    name=self._own.name,
                    inbox_prefix=inbox_of(self._own),
                    tls=self._tls,
                    tls_hostname="node",
                    connect_timeout=int(_ANSWER_S),
                    reconnect_time_wait=_AGAIN_S,  # type: ignore[arg-type]  # it sleeps for so long
                    max_reconnect_attempts=-1,
                    ping_interval=_PING_S,
                    max_outstanding_pings=2,
                    pending_size=4 << 20,
                    disconnected_cb=self._lost,
                    reconnected_cb=self._back,
                    error_cb=self._grumble,
                )
                client = made
            except (NoServersError, Error, OSError, TimeoutError) as error:
                await self._grumble(error)
                await asyncio.sleep(_AGAIN_S)
        self._client, self.refused = client, False
        self._stream = client.jetstream(timeout=_ANSWER_S)

    async def _keep_asking(self) -> None:
        """Notice soon that a server answers no more: nats-py waits for the end of its TLS before it tells."""
        while True:
            await asyncio.sleep(_PING_S)
            assert self._client is not None
            if self._client.is_closed:  # for nats-py that is the end where a server takes somebody's rights away
                self._note(answers=False)
                await self._dial()
            try:
                await self._client.flush(timeout=_PING_S * 2)
                answers = self._client.is_connected
            except Exception as error:  # noqa: BLE001 - of nats-py or of the connection, whatever it is
                answers = False
                if self._answers:
                    _log.warning("cluster_store_silent", reason=str(error) or type(error).__name__)
            if answers != self._answers:
                self._note(answers=answers)
            if answers and len(self._urls) > 1:
                await self._leave_undecided(self._client)

    async def _leave_undecided(self, client: Client) -> None:
        """Connect to another server if this one has decided nothing for a while: it has lost the others."""
        clock = asyncio.get_running_loop().time
        if self._trust.is_to_be_asked(clock()):
            assert self._stream is not None
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._stream.stream_info("KV_claims")
                decides = True
            except NotFoundError:  # it is not there yet, and that is known
                decides = True
            except (Error, OSError, TimeoutError):
                decides = False
            self._trust.note(clock(), decides=decides)
        if self._trust.ends(clock()):
            left = client.connected_url
            _log.warning("cluster_server_left", server=left and left.netloc, reason="it decides nothing")
            await client.force_reconnect()

    def _note(self, *, answers: bool) -> None:
        self._answers = answers
        self._changed(answers)

    async def ready(self) -> None:
        """Have the buckets there. Raises StoreUnavailable."""
        assert self._stream is not None
        for bucket in _BUCKETS:
            self._buckets[bucket] = await _asked(self._bucket(self._stream, bucket))

    async def put(self, bucket: Bucket, key: str, value: bytes | None) -> None:
        """See `Store`."""
        store = self._of(bucket)
        await self._written(store.delete(key) if value is None else store.put(key, value))

    async def create(self, bucket: Bucket, key: str, value: bytes) -> Entry:
        """See `Store`."""
        store = self._of(bucket)
        for _ in range(3):
            with contextlib.suppress(KeyWrongLastSequenceError, KeyNotFoundError):  # it may end in between
                return Entry(key, value, await self._written(store.create(key, value)))
            with contextlib.suppress(KeyNotFoundError):
                found = await _asked(store.get(key))
                return Entry(key, found.value, found.revision or 0)
        raise StoreUnavailable("the key changes all the time")

    async def update(self, bucket: Bucket, key: str, value: bytes | None, revision: int) -> int | None:
        """See `Store`."""
        store = self._of(bucket)
        try:
            if value is not None:
                return await self._written(store.update(key, value, last=revision))
            await self._written(store.delete(key, last=revision))
        except (KeyWrongLastSequenceError, KeyNotFoundError):
            return None
        return revision

    async def history(self, bucket: Bucket, key: str) -> list[Entry]:
        """See `Store`."""
        try:
            found = await _asked(self._of(bucket).history(key))
        except NoKeysError:
            return []
        return [Entry(key, None if one.operation else one.value, one.revision or 0) for one in found]

    async def watch(self, bucket: Bucket, hear: Callable[[Entry], None]) -> None:
        """See `Store`. Returns once all that was there has been told."""
        await self._unfollow(bucket)
        watcher = await _asked(self._of(bucket).watchall())
        known = asyncio.Event()

        async def follow() -> None:
            while True:
                found = await watcher._updates.get()
                if not isinstance(found, KeyValue.Entry):
                    known.set()
                    continue
                try:
                    hear(Entry(found.key, None if found.operation else found.value, found.revision or 0))
                except Exception:  # noqa: BLE001 - a bug that one entry brings out: the others are heard all the same
                    _log.exception("cluster_entry_not_taken", bucket=bucket, key=found.key)

        self._watching.add(task := asyncio.ensure_future(follow()))
        task.add_done_callback(self._watching.discard)
        self._followed[bucket] = watcher, task
        try:
            async with asyncio.timeout(_ANSWER_S):
                await known.wait()
        except TimeoutError:
            raise StoreUnavailable("what it has does not come") from None

    async def _unfollow(self, bucket: Bucket) -> None:
        """Have a bucket followed no more: its follower may be of a connection that has broken."""
        if (followed := self._followed.pop(bucket, None)) is not None:
            watcher, task = followed
            task.cancel()
            with contextlib.suppress(Exception):
                await _asked(watcher.stop())  # type: ignore[no-untyped-call]  # of nats-py

    async def publish(self, data: bytes, hear: Callable[[bytes], None] | None = None) -> None:
        """See `Store`."""
        if self._client is None:
            raise StoreUnavailable("it is not connected")

        async def told(message: Msg) -> None:
            assert hear is not None
            hear(message.data)

        if hear is not None:
            if self._listening is not None:
                with contextlib.suppress(Exception):
                    await _asked(self._listening.unsubscribe())
            self._listening = await _asked(self._client.subscribe(LOADS, cb=told, pending_bytes_limit=16 << 20))
        if data and self._client.is_connected:
            await _asked(self._client.publish(LOADS, data))

    async def close(self) -> None:
        """End the connection; nobody is told."""
        self._changed = _untold
        for task in self._watching:
            task.cancel()
        if self._client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1):
                    await self._client.close()

    def disown(self) -> None:
        """In a copy of the process: say and hear nothing more. The connection is another process's."""
        for task in self._watching:
            task.cancel()
        if self._client is not None:
            for name in ("_reading_task", "_ping_interval_task", "_flusher_task", "_reconnection_task"):
                if (work := getattr(self._client, name, None)) is not None:
                    work.cancel()

    async def _written(self, work: Awaitable[_Result]) -> _Result:
        """Return what a call gives that writes. Raises as `_asked`."""
        clock = asyncio.get_running_loop().time
        try:
            found = await _asked(work)
        except StoreUnavailable:
            self._trust.note(clock(), decides=False)
            raise
        except (KeyNotFoundError, KeyWrongLastSequenceError):
            self._trust.note(clock(), decides=True)
            raise
        self._trust.note(clock(), decides=True)
        return found

    def _of(self, bucket: Bucket) -> KeyValue:
        found = self._buckets.get(bucket)
        if found is None:
            raise StoreUnavailable("it is not connected yet")
        return found

    async def _bucket(self, stream: JetStreamContext, bucket: Bucket) -> KeyValue:
        return await stream.create_key_value(
            KeyValueConfig(
                bucket=bucket,
                history=MOST_VERSIONS if bucket == "config" else 1,
                ttl=CLAIM_S if bucket == "claims" else None,
                storage=StorageType.FILE,  # a server that comes back has its vote, and what it voted for
                max_value_size=MOST_CONFIG_BYTES if bucket == "config" else MOST_BYTES,
                max_bytes=_MOST_CONFIGS if bucket == "config" else _MOST_STORED,
                replicas=3 if len(self._urls) >= 3 else 1,
            )
        )

    async def _grumble(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        self.refused = self.refused or "authorization violation" in reason.lower()
        if reason != self._said and not (self._client is not None and self._client.is_connected):
            _log.warning("cluster_unreachable", servers=self._urls, reason=reason)
        self._said = reason

    async def _lost(self) -> None:
        self._note(answers=False)

    async def _back(self) -> None:
        self.refused = False
        self._trust.connected()
        self._note(answers=True)


async def _asked(work: Awaitable[_Result]) -> _Result:
    """Return what a call gives. Raises StoreUnavailable, and what tells of keys and revisions."""

    try:
        async with asyncio.timeout(_ANSWER_S * 2):
            return await work
    except (KeyNotFoundError, KeyWrongLastSequenceError, NoKeysError):
        raise
    except (Error, OSError, TimeoutError) as error:
        raise StoreUnavailable(str(error) or type(error).__name__) from error


def _untold(_connected: bool) -> None:
    return


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
