"""The byte path of an answer in the engine's own form of a completion, said in another: a filter as `RecoveredStream`.

It stands behind `core/stream/filter.py`, which cuts the bytes into whole events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.doors.turned import RawVoice
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.stream.fold import well_shaped
from supervisor.core.text.foreignjson import NotJson, parse

_END: Final = b"\n\n"


class RawStream:
    """A filter between the engine's events and the client's bytes.

    Attributes:
        done: the client's stream has been given its end.
    """

    def __init__(self, relay: StreamFilter, voice: RawVoice) -> None:
        self.done = False
        self._relay = relay
        self._voice = voice

    def feed(self, arrived: bytes) -> bytes:
        """Return the bytes that may be sent now. Raise EngineStreamInvalid for an unknown shape."""
        whole = self._relay.feed(arrived)
        if not whole or self.done:
            return b""
        with well_shaped():
            return b"".join(map(self._event, whole.split(_END)[:-1]))

    def ending(self, error: Mapping[str, object]) -> bytes:
        """Return the bytes to send where the engine's stream broke off; see `StreamFilter.ending`."""
        if self.done:
            return b""
        self.done = True
        return self._voice.error(error)

    def cut(self) -> None:
        """Forget the beginning of an event whose end will not come."""
        self._relay.cut()

    def _event(self, event: bytes) -> bytes:
        if self.done or not event.startswith(b"data:"):
            return b""
        try:
            said: object = parse(event[5:].strip())
        except NotJson:
            return b""
        if not isinstance(said, dict):
            return b""
        failure = said.get("error")
        if failure is not None:
            self.done = True
            return self._voice.error(failure if isinstance(failure, dict) else {"message": str(failure)})
        self.done = bool(said.get("stop"))
        return self._voice.event(said)
