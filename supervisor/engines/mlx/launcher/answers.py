"""The form of an answer, as llama-server gives it: events of a stream, or one object."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from .texts import Piece

FINGERPRINT: Final = "mlx-lm"
_STOPS: Final = {"stop": "eos", "word": "word", "length": "limit"}

Json = dict[str, Any]


@dataclass
class Account:
    """What an answer took. Seconds are those of a monotonic clock.

    Attributes:
        prompt, cached, written: tokens; context: of the engine, for one answer.
        begun: when it was asked for; answering: when the prompt was read.
        last: why it ended, `stop`, `word` or `length`; word: the stop string.
    """

    prompt: int
    cached: int = 0
    written: int = 0
    begun: float = field(default_factory=time.monotonic)
    answering: float | None = None
    last: str = ""
    word: str = ""

    @property
    def reason(self) -> str:
        """The `finish_reason`."""
        return "length" if self.last == "length" else "stop"

    def usage(self) -> Json:
        """Return `usage`."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.written,
            "total_tokens": self.prompt + self.written,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }

    def timings(self) -> Json:
        """Return `timings`."""
        now = time.monotonic()
        answering = now if self.answering is None else self.answering
        read, reading, writing = self.prompt - self.cached, answering - self.begun, now - answering
        return {
            "cache_n": self.cached,
            "prompt_n": read,
            "prompt_ms": reading * 1000,
            "prompt_per_token_ms": reading * 1000 / max(1, read),
            "prompt_per_second": read / reading if reading else 0.0,
            "predicted_n": self.written,
            "predicted_ms": writing * 1000,
            "predicted_per_token_ms": writing * 1000 / max(1, self.written),
            "predicted_per_second": self.written / writing if writing else 0.0,
        }

    def progress(self, read: int) -> Json:
        """Return `prompt_progress`, at so many tokens."""
        elapsed = int((time.monotonic() - self.begun) * 1000)
        return {"total": self.prompt, "cache": self.cached, "processed": read, "time_ms": elapsed}


class Form(Protocol):
    """One API's form."""

    ends_with_done: bool

    def progress(self, account: Account, read: int) -> Json:
        """Return the event that so much of the prompt is read."""

    def piece(self, account: Account, piece: Piece) -> Json:
        """Return the event of some text."""

    def end(self, account: Account, *, with_usage: bool) -> list[Json]:
        """Return the last events."""

    def whole(self, account: Account, pieces: list[Piece]) -> Json:
        """Return the answer in one object."""


class Chat:
    """`/v1/chat/completions`."""

    ends_with_done = True

    def __init__(self, model: str) -> None:
        self._head = {
            "created": int(time.time()),
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "model": model,
            "system_fingerprint": FINGERPRINT,
            "object": "chat.completion.chunk",
        }
        self._begun = False

    def progress(self, account: Account, read: int) -> Json:
        """Return a chunk without text."""
        self._begun = True
        return {**self._chunk({"role": "assistant", "content": None}), "prompt_progress": account.progress(read)}

    def piece(self, account: Account, piece: Piece) -> Json:
        """Return a chunk; the first one has the role."""
        role = {} if self._begun else {"role": "assistant"}
        self._begun = True
        return self._chunk({**role, "reasoning_content" if piece.thought else "content": piece.text})

    def end(self, account: Account, *, with_usage: bool) -> list[Json]:
        """Return the chunk with the reason, and one with the usage."""
        last = self._chunk({} if self._begun else {"role": "assistant", "content": ""}, account.reason)
        if not with_usage:
            return [{**last, "timings": account.timings()}]
        return [last, {**self._head, "choices": [], "usage": account.usage(), "timings": account.timings()}]

    def whole(self, account: Account, pieces: list[Piece]) -> Json:
        """Return a chat completion."""
        thoughts = "".join(piece.text for piece in pieces if piece.thought)
        said = "".join(piece.text for piece in pieces if not piece.thought)
        more = {"reasoning_content": thoughts} if thoughts else {}
        message = {"role": "assistant", "content": said, **more}
        choice = {"finish_reason": account.reason, "index": 0, "message": message}
        counts = {"usage": account.usage(), "timings": account.timings()}
        return {**self._head, "object": "chat.completion", "choices": [choice], **counts}

    def _chunk(self, delta: Json, reason: str | None = None) -> Json:
        return {**self._head, "choices": [{"finish_reason": reason, "index": 0, "delta": delta}]}


class Text:
    """`/v1/completions`."""

    ends_with_done = True

    def __init__(self, model: str) -> None:
        self._head = {
            "created": int(time.time()),
            "id": f"cmpl-{uuid.uuid4().hex}",
            "model": model,
            "system_fingerprint": FINGERPRINT,
            "object": "text_completion",
        }

    def progress(self, account: Account, read: int) -> Json:
        """Return a chunk without text."""
        return {**self._chunk(""), "prompt_progress": account.progress(read)}

    def piece(self, account: Account, piece: Piece) -> Json:
        """Return a chunk."""
        return self._chunk(piece.text)

    def end(self, account: Account, *, with_usage: bool) -> list[Json]:
        """Return the chunk with the reason, and one with the usage."""
        last = self._chunk("", account.reason)
        if not with_usage:
            return [{**last, "timings": account.timings()}]
        return [last, {**self._head, "choices": [], "usage": account.usage(), "timings": account.timings()}]

    def whole(self, account: Account, pieces: list[Piece]) -> Json:
        """Return a completion."""
        text = "".join(piece.text for piece in pieces)
        return {**self._chunk(text, account.reason), "usage": account.usage(), "timings": account.timings()}

    def _chunk(self, text: str, reason: str | None = None) -> Json:
        return {**self._head, "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": reason}]}


class Raw:
    """`/completion`, llama-server's own."""

    ends_with_done = False

    def __init__(self, model: str) -> None:
        self._model = model

    def progress(self, account: Account, read: int) -> Json:
        """Return an event without text."""
        return {**self._event(account, ""), "prompt_progress": account.progress(read)}

    def piece(self, account: Account, piece: Piece) -> Json:
        """Return an event."""
        return self._event(account, piece.text)

    def end(self, account: Account, *, with_usage: bool) -> list[Json]:
        """Return the last event, which always has the counts."""
        return [self._last(account, "")]

    def whole(self, account: Account, pieces: list[Piece]) -> Json:
        """Return all in one."""
        return self._last(account, "".join(piece.text for piece in pieces))

    def _event(self, account: Account, text: str) -> Json:
        counts = {"tokens_predicted": account.written, "tokens_evaluated": account.prompt}
        return {"index": 0, "content": text, "tokens": [], "stop": False, "id_slot": -1, **counts}

    def _last(self, account: Account, text: str) -> Json:
        ended = {"stop_type": _STOPS.get(account.last, "none"), "stopping_word": account.word, "truncated": False}
        return {
            **self._event(account, text),
            "stop": True,
            "model": self._model,
            **ended,
            "tokens_cached": account.cached,
            "timings": account.timings(),
        }
