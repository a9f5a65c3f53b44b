"""The relay's side of tool calls: which requests are watched, what a watched answer becomes, counters and the log."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from supervisor.core.recovery import ChatRecovery, RecoveredStream, Tally, ToolPolicy, asked_policy, mended_messages
from supervisor.core.recovery.policy import FIELD
from supervisor.core.registry import ModelEntry
from supervisor.core.relay import Relay
from supervisor.core.toolcalls.whole import Request
from supervisor.core.toolmode import ToolMode
from supervisor.core.upstream import set_fields

_log = structlog.get_logger()
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def call_id() -> str:
    """An id for a call, as OpenAI's look; unique for ever."""
    return "call_" + "".join(secrets.choice(_DIGITS) for _ in range(24))


@dataclass
class Counts:
    """One model's counters since the daemon started.

    Attributes:
        answers: that were watched. native: calls that the engine had parsed. recovered, repaired: calls found in text,
            by dialect. left_as_text: what began like a call, by reason. repeated: calls that came twice and were given
            once. saved: answers whose calls were saved from an error of the engine's parser. failed: answers that
            such an error ended.
    """

    answers: int = 0
    native: int = 0
    recovered: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    left_as_text: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    saved: int = 0
    failed: int = 0

    def add(self, tally: Tally, *, failed: bool) -> None:
        """Count one answer."""
        self.answers += 1
        self.native += tally.native
        self.repeated += tally.repeated
        self.saved += tally.saved
        self.failed += failed
        self.recovered.update(tally.recovered)
        self.repaired.update({dialect: count for dialect, count in tally.repaired.items() if count})
        self.left_as_text.update(tally.left_as_text)

    def to_json(self) -> dict[str, object]:
        """As GET /api/v1/toolcalls shows it."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}


class ToolCalls:
    """Decides per request, and remembers per model.

    Args:
        default: the server's mode.
        make_id: see `call_id`.
        clock: seconds.
    """

    def __init__(
        self,
        default: ToolMode = "auto",
        make_id: Callable[[], str] = call_id,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: dict[str, Counts] = {}
        self._default = default
        self._make_id = make_id
        self._clock = clock

    def prepare(self, body: bytes, asked: Mapping[str, Any], entry: ModelEntry) -> tuple[bytes, Watch | None]:
        """The body for the engine, and the watch over its answer; None: it is handed on as it comes."""
        policy = asked_policy(asked, entry.tool_calls, self._default)
        if FIELD in asked:
            asked = {key: value for key, value in asked.items() if key != FIELD}
            body = json.dumps(asked).encode()
        if policy.mode != "off":
            messages = mended_messages(asked.get("messages"))
            if messages is not None:
                body = set_fields(body, {"messages": messages})
        return body, Watch(self, policy, entry.id, asked) if policy.watches else None

    def settle(self, model: str, tally: Tally, *, failed: bool) -> None:
        """Count an answer and tell the log."""
        self.counts.setdefault(model, Counts()).add(tally, failed=failed)
        if tally.recovered or tally.saved or failed:
            _log.info(
                "tool_calls_recovered", model=model, calls=dict(tally.recovered), saved=tally.saved, failed=failed
            )
        for text in tally.dropped:
            _log.debug("tool_call_markup", model=model, text=text)

    def recovery(self, request: Request, tally: Tally) -> ChatRecovery:
        """Recovery for one answer."""
        return ChatRecovery(request, self._make_id, tally)

    def stream(self, recovery: ChatRecovery, relay: Relay) -> RecoveredStream:
        """The byte path of one answer."""
        return RecoveredStream(relay, recovery, self._clock)

    def new_id(self) -> str:
        """An id for a call."""
        return self._make_id()


class Watch:
    """One request whose answer may hold calls."""

    def __init__(self, owner: ToolCalls, policy: ToolPolicy, model: str, asked: Mapping[str, Any]) -> None:
        self.policy = policy
        self._owner = owner
        self._model = model
        self._request = Request(asked.get("tools"), asked.get("tool_choice"), policy.options(asked), owner.new_id)
        self._tally = Tally()
        self._stream: RecoveredStream | None = None

    def stream(self, relay: Relay) -> RecoveredStream:
        """The way of the answer's bytes; anew for every try."""
        self._tally = Tally()
        self._stream = self._owner.stream(self._owner.recovery(self._request, self._tally), relay)
        return self._stream

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """An answer that came in one piece."""
        return self._owner.recovery(self._request, self._tally).whole(body)

    def settle(self) -> None:
        """The answer is over."""
        failed = self._stream is not None and self._stream.error is not None
        self._owner.settle(self._model, self._tally, failed=failed)
