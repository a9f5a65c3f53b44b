"""The byte path of an answer in which calls are looked for: whole events in, whole events out.

An event of which nothing changes goes on as the engine wrote it. It stands behind `core/relay.py`, which cuts the bytes
into whole events and takes out what the client did not ask for, and looks like it to whoever sends the bytes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from supervisor.core.recovery.chunks import ChatRecovery
from supervisor.core.relay import Relay
from supervisor.core.sse import DONE, SseEvent, encode

_END: Final = b"\n\n"
_DONE_EVENT: Final = encode(SseEvent(DONE))
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_KEEP_ALIVE_S: Final = 2.0


class RecoveredStream:
    """Filter between the engine's bytes and the client's.

    Args:
        relay: cuts the bytes.
        recovery: of this answer's chunks.
        clock: seconds, for the comments that keep a connection alive while a call is held back.

    Attributes:
        done: the client's stream has been given its end.
        error: the engine's error object, where it is all there is to say.
    """

    def __init__(self, relay: Relay, recovery: ChatRecovery, clock: Callable[[], float]) -> None:
        self.done = False
        self.error: Mapping[str, Any] | None = None
        self._relay = relay
        self._recovery = recovery
        self._clock = clock
        self._last = clock()

    def feed(self, arrived: bytes) -> bytes:
        """What may be sent now."""
        whole = self._relay.feed(arrived)
        if not whole or self.done:
            return b""
        out = b"".join([self._event(event) for event in whole.split(_END)[:-1]])
        now = self._clock()
        if out:
            self._last = now
        elif now - self._last >= _KEEP_ALIVE_S:
            self._last = now
            return _KEEP_ALIVE
        return out

    def ending(self, error: Mapping[str, object]) -> bytes:
        """What to send where the engine's stream broke off; see `Relay.ending`."""
        if self.done:
            return b""
        self.done = True
        return b"".join([*map(_encoded, self._recovery.flush()), _encoded({"error": dict(error)}), _DONE_EVENT])

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(b"data:"):
            return event + _END
        data = event[5:].strip()
        if data == DONE.encode():
            self.done = True
            return b"".join([*map(_encoded, self._recovery.flush()), _DONE_EVENT])
        try:
            chunk = json.loads(data)
        except ValueError:
            return event + _END
        if not isinstance(chunk, dict):
            return event + _END
        failure = chunk.get("error")
        if failure is not None:
            return self._failed(failure if isinstance(failure, dict) else {"message": str(failure)})
        chunks = self._recovery.feed(chunk)
        if len(chunks) == 1 and chunks[0] is chunk:
            return event + _END
        return b"".join(map(_encoded, chunks))

    def _failed(self, error: Mapping[str, Any]) -> bytes:
        chunks, saved = self._recovery.save(error)
        self.done = True
        self.error = None if saved else error
        end = [] if saved else [_encoded({"error": dict(error)})]
        return b"".join([*map(_encoded, chunks), *end, _DONE_EVENT])


def _encoded(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + _END
