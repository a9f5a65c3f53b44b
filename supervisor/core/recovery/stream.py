"""The byte path of an answer in which calls are looked for: whole events in, whole events out.

An event of which nothing changes goes on as the engine wrote it. It stands behind `core/relay.py`, which cuts the bytes
into whole events and takes out what the client did not ask for, and looks like it to whoever sends the bytes on.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from supervisor.core.recovery.chunks import ChatRecovery
from supervisor.core.recovery.raw import RawChunks
from supervisor.core.relay import Relay
from supervisor.core.sse import DONE, SseEvent, encode

_END: Final = b"\n\n"
_DONE_EVENT: Final = encode(SseEvent(DONE))
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_KEEP_ALIVE_S: Final = 2.0
_PARSER: Final = re.compile(r"does not match the expected|Failed to parse input|grammar stack|parse error")


class ParserFailed(Exception):
    """The engine could not read its own model's text, and the client has not had any of it: another way may be taken.

    `role_given`: the client knows that an assistant speaks. `head`: what the chunks of this answer share.
    """

    def __init__(self, *, role_given: bool, head: Mapping[str, Any]) -> None:
        super().__init__()
        self.role_given = role_given
        self.head = head


class Again(enum.Enum):
    """When an answer that the engine's parser has failed on may be asked for anew."""

    NEVER = "never"
    UNTIL_SAID = "until said"  # while the client has had no text and no call
    ALWAYS = "always"  # the client gets nothing before the end


class RecoveredStream:
    """Filter between the engine's bytes and the client's.

    Args:
        relay: cuts the bytes.
        recovery: of this answer's chunks.
        clock: seconds, for the comments that keep a connection alive while a call is held back.
        raw: the engine's events are those of a completion; this makes chunks of a chat of them.
        again: see `Again`; then `feed` raises ParserFailed.

    Attributes:
        done: the client's stream has been given its end.
        error: the engine's error object, where it is all there is to say.
    """

    def __init__(
        self,
        relay: Relay,
        recovery: ChatRecovery,
        clock: Callable[[], float],
        *,
        raw: RawChunks | None = None,
        again: Again = Again.NEVER,
    ) -> None:
        self.done = False
        self.error: Mapping[str, Any] | None = None
        self._relay = relay
        self._recovery = recovery
        self._clock = clock
        self._last = clock()
        self._raw = raw
        self._again = again
        self._role_given = False

    def feed(self, arrived: bytes) -> bytes:
        """What may be sent now."""
        whole = self._relay.feed(arrived)
        if not whole or self.done:
            return b""
        out = b"".join([self._event(event) for event in whole.split(_END)[:-1]])
        now = self._clock()
        if out:
            self._last = now
            self._role_given = True  # only now: what came together with an error that is raised was not sent
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
        if self._raw is not None:
            return self._converted(self._raw, chunk)
        chunks = self._recovery.feed(chunk)
        if len(chunks) == 1 and chunks[0] is chunk:
            return event + _END
        return b"".join(map(_encoded, chunks))

    def _converted(self, raw: RawChunks, event: Mapping[str, Any]) -> bytes:
        chunks = [out for chunk in raw.feed(event) for out in self._recovery.feed(chunk)]
        self.done = raw.done
        return b"".join([*map(_encoded, chunks), *([_DONE_EVENT] if raw.done else [])])

    def _failed(self, error: Mapping[str, Any]) -> bytes:
        late = self._again is Again.UNTIL_SAID and self._recovery.has_said
        if self._again is not Again.NEVER and not late and is_parser_s(error):
            role_given = self._role_given and self._again is Again.UNTIL_SAID
            raise ParserFailed(role_given=role_given, head=self._recovery.head)
        chunks, saved = self._recovery.save(error)
        self.done = True
        self.error = None if saved else error
        end = [] if saved else [_encoded({"error": dict(error)})]
        return b"".join([*map(_encoded, chunks), *end, _DONE_EVENT])


def is_parser_s(error: Mapping[str, Any]) -> bool:
    """Whether the engine failed over the model's text, not over anything else."""
    message = error.get("message")
    return isinstance(message, str) and _PARSER.search(message) is not None


def _encoded(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + _END
