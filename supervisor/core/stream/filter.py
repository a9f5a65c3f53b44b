"""The fast byte path of a streamed answer: whole events through, progress chunks out.

The engine is always asked for prompt progress (see `core/stream/outgoing.py`); a client that did not ask for it gets
exactly the stream it would have had without. Measured on llama-server b11434: a progress chunk carries its own
copy of the role delta, and the role delta of the first token is sent all the same, so dropping every progress
chunk whole restores that stream byte for byte. One exception: when the engine continues an assistant message that
the client began, the first progress chunk carries that beginning as content, after a role delta of its own; then
the chunk goes on without its progress, and the role delta of the first token, now the second one, is dropped.

Rule: no work per event. A chunk costs one search for the last blank line and one for the key; events are looked
at one by one only where the key was found. In a JSON string a quote is escaped, so text that quotes the key is
not found at all; a string that is the key's name as a whole is, and the parse tells it from the key.

Two more differences from the engine's bytes. The chunks of one answer share one `created`, the first one's, where the
engine looks at its clock for each. A stream of `/v1/responses` says its progress in events `response.in_progress`, of
which a client that did not ask for it gets the first one only.

The engine ends lines with LF only; a stream with other line ends is for `core/stream/sse.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.core.engine_output.broken import said_broken
from supervisor.core.engine_output.errors import translate
from supervisor.core.stream.apis import OPENAI, RESPONSES, Api
from supervisor.core.stream.sse import MAX_EVENT_BYTES, SseEvent, encode
from supervisor.core.text.foreignjson import NotJson, compact, parse
from supervisor.errors import EngineStreamInvalid

_END = b"\n\n"
_PROGRESS = b'"prompt_progress"'
_CREATED = re.compile(rb'"created":\d+')  # a quote in a string is escaped: never text
_CREATED_KEY = b'"created":'
_IN_PROGRESS = b"event: response.in_progress\n"
_FAILS = (b'data: {"error":', b"event: error\n")  # how an event begins with which the engine ends a stream early


class StreamFilter:
    """A filter between the engine's bytes and the client's.

    Args:
        drop_progress: take prompt progress chunks out.
        max_event_bytes: an event longer than this raises `EngineStreamInvalid`.
        api: whose stream it is.
        one_created: the chunks of one answer share one `created`; False where each is to tell its own time.

    Attributes:
        started: an event has been let through; a request that has not started may be tried again.
        withheld: the event by which the engine says that its device has failed. It is not let through: another engine
            may give the answer. broken: its message.
        code: of the engine's error that was let through, in our words.
    """

    def __init__(
        self,
        *,
        drop_progress: bool,
        max_event_bytes: int = MAX_EVENT_BYTES,
        api: Api = OPENAI,
        one_created: bool = True,
    ) -> None:
        self._api = api
        self.started = False
        self.withheld = b""
        self.broken = ""
        self.code = ""
        progress = _ResponsesProgress if api is RESPONSES else _ProgressFilter
        self._progress = progress() if drop_progress else None
        self._dates = one_created and api is OPENAI
        self._created = b""
        self._later = b""  # another one, of the second in which the engine's newest chunk was made
        self._limit = max_event_bytes
        self._held: list[bytes] = []
        self._held_size = 0
        self._last = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that may be sent now: whole events only, empty when there are none."""
        whole = self._join(chunk) if self._held else self._cut(chunk)
        if not whole:
            return whole
        if self._progress is not None and (_PROGRESS in whole or self._progress.pending):
            whole = self._progress.apply(whole)
            if not whole:
                return whole
        if self._dates:
            whole = whole.replace(self._later, self._created) if self._later else whole
            if not self._created or whole.count(self._created) != whole.count(_CREATED_KEY):
                whole = self._dated(whole)
        if _FAILS[0] in whole or _FAILS[1] in whole:
            whole = b"".join(map(self._judged, whole.split(_END)[:-1]))
            if not whole:
                return whole
        if not whole.startswith(b":") or _last_event(whole):  # comments alone are no event
            self._last = whole
            self.started = True
        return whole

    @property
    def partial(self) -> bytes:
        """Beginning of an event whose end has not come; never sent."""
        return b"".join(self._held)

    def cut(self) -> None:
        """Forget the beginning of an event whose end will not come."""
        self._held.clear()
        self._held_size = 0

    @property
    def done(self) -> bool:
        """True if the event that ends a complete stream was let through."""
        return self.is_last(_last_event(self._last))

    def is_last(self, event: bytes) -> bool:
        """Return whether an event, without the empty line after it, ends a complete stream."""
        return self._api.is_last(event) and not self._is_error(event)

    @property
    def failed(self) -> bool:
        """True if the stream's last event is the engine's error object; it sends no `[DONE]` after one.

        The `error:` line of older builds does not count: to a client it is an unknown field, so it saw no error.
        """
        return self._is_error(_last_event(self._last))

    def ending(self, error: Mapping[str, object]) -> bytes:
        """Return the bytes to send when the engine's stream is over, so that the client's ends properly.

        Args:
            error: the error object to report where the stream broke off: `message`, `type`, `code`, `param`.
        """
        if self.done:
            return b""
        if self.failed:
            return self._api.after_error
        return self._api.stream_error(error)

    @staticmethod
    def _is_error(event: bytes) -> bool:
        return event.startswith(b"data:") and b'"error"' in event and "error" in _parse(event)

    def _judged(self, event: bytes) -> bytes:
        """Return an event, the engine's error in our words; empty where its device has failed."""
        error = _parse(event).get("error") if event.startswith(_FAILS[0]) else _failure(event)
        if broken := said_broken(error):
            self.withheld, self.broken = event + _END, broken
            return b""
        if isinstance(error, dict) and event.startswith(_FAILS[0]):
            envelope = translate(error)[1]
            self.code = str(envelope["error"]["code"])
            return encode(SseEvent(compact(envelope)))
        return event + _END

    def _dated(self, whole: bytes) -> bytes:
        """Return the events with the first chunk's `created` in all others."""
        found = _CREATED.findall(whole)
        if not found:
            return whole
        self._created = self._created or found[0] + b","
        self._later = found[-1] + b","
        return _CREATED.sub(self._created[:-1], whole)

    def _join(self, chunk: bytes) -> bytes:
        """Cut a chunk that continues a held event, like `_cut`, without searching the held bytes again."""
        cut = chunk.rfind(_END)
        if cut >= 0:
            cut += len(_END)
        elif chunk.startswith(b"\n") and self._held[-1].endswith(b"\n"):
            cut = 1
        else:
            self._hold(chunk)
            return b""
        whole = b"".join([*self._held, chunk[:cut]])
        self._held.clear()
        self._held_size = 0
        if cut < len(chunk):
            self._hold(chunk[cut:])
        return whole

    def _cut(self, chunk: bytes) -> bytes:
        found = chunk.rfind(_END)
        cut = found + len(_END) if found >= 0 else 0
        if cut == len(chunk):
            return chunk
        self._hold(chunk[cut:])
        return chunk[:cut]

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._held.append(piece)
        self._held_size += len(piece)
        if self._held_size > self._limit:
            raise EngineStreamInvalid(f"An event of the engine's stream is longer than {self._limit} bytes.")


class _ProgressFilter:
    """A filter that takes progress out of whole events.

    Attributes:
        pending: events without progress have to be looked at, too: indexes of the choices whose role was already sent
            with a progress chunk's content.
    """

    def __init__(self) -> None:
        self.pending: set[int] = set()

    def apply(self, block: bytes) -> bytes:
        return b"".join(self._event(event) for event in block.split(_END)[:-1])

    def _event(self, event: bytes) -> bytes:
        if _PROGRESS not in event and not self.pending:
            return event + _END
        chunk = _parse(event)
        index, delta = _first_delta(chunk)
        if "prompt_progress" not in chunk:
            second = index in self.pending and not _carries_text(delta)
            self.pending.discard(index)
            return b"" if second else event + _END
        if not _carries_text(delta):
            return b""
        self.pending.add(index)
        kept = {key: value for key, value in chunk.items() if key != "prompt_progress"}
        return encode(SseEvent(compact(kept)))


class _ResponsesProgress:
    """A filter that takes progress out of the events of `/v1/responses`.

    Attributes:
        pending: events without progress have to be looked at, too: one that says `in_progress` has not come yet.
    """

    def __init__(self) -> None:
        self.pending = True

    def apply(self, block: bytes) -> bytes:
        return b"".join(self._event(event) for event in block.split(_END)[:-1])

    def _event(self, event: bytes) -> bytes:
        begins = event.startswith(_IN_PROGRESS)
        if _PROGRESS in event:
            name, _, data = event.partition(b"\ndata:")
            told = _parse(b"data:" + data)
            if "prompt_progress" in told:
                if begins and not self.pending:
                    return b""
                kept = {key: value for key, value in told.items() if key != "prompt_progress"}
                event = name + b"\n" + encode(SseEvent(compact(kept))).removesuffix(_END)
        self.pending = self.pending and not begins
        return event + _END


def _failure(event: bytes) -> Mapping[str, object]:
    """Return the error object of an event `error`, as `/v1/messages` has it; empty for anything else."""
    name, _, data = event.partition(b"\ndata:")
    return _parse(b"data:" + data) if name == b"event: error" else {}


def _first_delta(chunk: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
    """Return index and delta of the chunk's choice; the engine puts one in a chunk."""
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return -1, {}
    index, delta = choice.get("index"), choice.get("delta")
    return index if isinstance(index, int) else -1, delta if isinstance(delta, dict) else {}


def _carries_text(delta: Mapping[str, object]) -> bool:
    return any(value for key, value in delta.items() if key != "role")


def _last_event(block: bytes) -> bytes:
    """Return the last event of a block, without comments."""
    for event in reversed(block.split(_END)):
        if event and not event.startswith(b":"):
            return event
    return b""


def _parse(event: bytes) -> Mapping[str, object]:
    """Return the JSON object of an event of one line; empty for anything else, which is not ours to judge."""
    try:
        value = parse(event.partition(b":")[2])
    except NotJson:
        return {}
    return value if isinstance(value, dict) else {}
