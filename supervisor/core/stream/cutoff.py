"""End an answer whose time is over, as the engine would have ended it.

llama-server has a limit of its own (`t_max_predict_ms`). It counts from the first token, so not while a prompt is read,
and it ends an answer only once a line has ended, so it never ends one without lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from supervisor.core.stream.sse import DONE, SseEvent, encode
from supervisor.core.text.foreignjson import NotJson, compact, parse

Cuttable: TypeAlias = Literal["chat", "completion", "raw"]
"""The kinds of streams that can be ended."""

_PROGRESS: Final = b'"prompt_progress"'
_INDEX: Final = re.compile(rb'"index":(\d{1,9})\b')
_ENDS: Final = (b'"finish_reason":"', b'"stop":true')
_HEAD: Final = ("id", "created", "model", "object", "system_fingerprint")


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer is to be ended.

    Attributes:
        kind: of the engine's stream.
        choices: as many as the request asks for.
        usage: it was asked for.
        why: for the client.
    """

    kind: Cuttable
    choices: int
    usage: bool
    why: str


class Cutoff:
    """The end of one stream, in the engine's words. `see` is told of every piece of the stream."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self._first = b""
        self._progress = b""
        self._texts = 0
        self._begun: set[int] = set()
        self._ended: set[int] = set()

    def see(self, piece: bytes) -> None:
        """Note a piece of the stream: whole events, as the engine sends them."""
        if not self._first:
            self._first = piece
        if _PROGRESS in piece:
            self._progress = piece
        self._texts += piece.count(b"data: {") - piece.count(_PROGRESS)
        if self._ending.kind != "chat":  # whose calls have indexes, too
            self._begun.update(map(int, _INDEX.findall(piece)))
        if _ENDS[0] in piece or _ENDS[1] in piece:
            for event in piece.split(b"\n\n"):
                self._ended.update(_ended_in(event))

    def end(self) -> bytes:
        """Return the events that end the stream."""
        open_ = sorted((self._begun | set(range(self._ending.choices))) - self._ended)
        match self._ending.kind:
            case "chat":
                return self._of_chunks([{"finish_reason": "length", "index": index, "delta": {}} for index in open_])
            case "completion":
                return self._of_chunks([
                    {"text": "", "index": index, "logprobs": None, "finish_reason": "length"} for index in open_
                ])
            case "raw":
                return b"".join(map(self._raw_end, open_))

    def _of_chunks(self, choices: list[dict[str, object]]) -> bytes:
        told = _object(self._first, "choices")
        head = {key: told[key] for key in _HEAD if key in told}
        events: list[dict[str, object]] = [
            {**head, "choices": [choice], "ended_by": self._ending.why} for choice in choices
        ]
        if self._ending.usage:
            read, written = self._counts()
            usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
            events.append({**head, "choices": [], "usage": usage})
        return b"".join(encode(SseEvent(compact(event))) for event in events) + encode(SseEvent(DONE))

    def _raw_end(self, index: int) -> bytes:
        read, written = self._counts()
        told = {"index": index, "content": "", "tokens": [], "stop": True, "stop_type": "limit", "stopping_word": ""}
        counts = {"tokens_predicted": written, "tokens_evaluated": read}
        return encode(SseEvent(compact({**told, **counts, "ended_by": self._ending.why})))

    def _counts(self) -> tuple[int, int]:
        """Return the tokens of the prompt, as far as reported, and the events that report nothing."""
        progress = _object(self._progress, "prompt_progress").get("prompt_progress")
        read = progress.get("total") if isinstance(progress, Mapping) else None
        return read if isinstance(read, int) else 0, max(0, self._texts)


def _ended_in(event: bytes) -> Iterator[int]:
    """Yield the indexes of the choices that an event ends."""
    if _ENDS[0] not in event and _ENDS[1] not in event:
        return
    told = _object(event, "choices") or _object(event, "stop")
    choices = told.get("choices", [told])
    for choice in choices if isinstance(choices, list) else ():
        ends = isinstance(choice, dict) and (choice.get("finish_reason") or choice.get("stop"))
        index = choice.get("index", 0) if ends else None
        if isinstance(index, int):
            yield index


def _object(piece: bytes, key: str) -> Mapping[str, object]:
    """Return the last event in a piece that has the key; empty where there is none."""
    for event in reversed(piece.split(b"\n\n")):
        try:
            found = parse(event.removeprefix(b"data: "))
        except NotJson:
            continue
        if isinstance(found, dict) and key in found:
            return found
    return {}
