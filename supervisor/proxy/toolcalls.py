"""The relay's side of tool calls: which requests are watched, what a watched answer becomes, counters and the log."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import structlog

from supervisor.core.recovery import (
    ChatRecovery,
    ParserFailed,
    RecoveredStream,
    Tally,
    ToolPolicy,
    asked_policy,
    mended_messages,
)
from supervisor.core.recovery.emulate import TemplateFacts, emulated
from supervisor.core.recovery.policy import FIELD
from supervisor.core.recovery.raw import (
    TEMPLATE_PATH,
    RawChunks,
    can_go_raw,
    completion_request,
    opens_thought,
    template_request,
)
from supervisor.core.recovery.stream import Again, is_parser_s
from supervisor.core.registry import ModelEntry
from supervisor.core.relay import Relay
from supervisor.core.toolcalls.whole import Request
from supervisor.core.toolmode import ToolMode
from supervisor.core.upstream import set_fields
from supervisor.engine_client import EngineClient

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

    Attributes:
        default: may be set anew.
    """

    def __init__(
        self,
        default: ToolMode = "auto",
        make_id: Callable[[], str] = call_id,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: dict[str, Counts] = {}
        self.default = default
        self.make_id = make_id
        self.clock = clock
        self._unparsable: set[str] = set()
        self._facts: WeakKeyDictionary[EngineClient, TemplateFacts] = WeakKeyDictionary()

    def prepare(self, body: bytes, asked: Mapping[str, Any], entry: ModelEntry) -> tuple[bytes, Watch | None]:
        """The body for the engine, and the watch over its answer; None: it is handed on as it comes."""
        policy = asked_policy(asked, entry.tool_calls, self.default)
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

    async def template_facts(self, client: EngineClient) -> TemplateFacts:
        """What an engine says of its template; asked once."""
        if client not in self._facts:
            async with client.get("/props") as answer:
                props = await answer.json() if answer.status == 200 else {}
            self._facts[client] = TemplateFacts.from_props(props if isinstance(props, dict) else {})
        return self._facts[client]

    def unparsed(self, model: str) -> None:
        """The engine's parser has failed on this model; requests with mode `auto` leave it out from now on."""
        if model not in self._unparsable:
            _log.warning("engine_parser_failed", model=model, then="raw")
        self._unparsable.add(model)

    def goes_raw(self, policy: ToolPolicy, model: str) -> bool:
        """Whether the engine's parser is to be left out."""
        return policy.mode == "raw" or (policy.mode == "auto" and model in self._unparsable)

    def recovery(self, request: Request, tally: Tally) -> ChatRecovery:
        """Recovery for one answer."""
        return ChatRecovery(request, self.make_id, tally)


class Watch:
    """One request whose answer may hold calls.

    Attributes:
        raw: the engine's parser is left out.
    """

    def __init__(self, owner: ToolCalls, policy: ToolPolicy, model: str, asked: Mapping[str, Any]) -> None:
        self.raw = owner.goes_raw(policy, model) and can_go_raw(asked)
        self._policy = policy
        self._owner = owner
        self._model = model
        self._asked = asked
        self._tally = Tally()
        self._stream: RecoveredStream | None = None
        self._role_given = False
        self._head: Mapping[str, Any] = _new_head(asked)
        self._thinking = False

    def stream(self, relay: Relay) -> RecoveredStream:
        """The way of the answer's bytes; anew for every try."""
        self._tally = Tally()
        recovery = self._owner.recovery(self._request(), self._tally)
        self._stream = RecoveredStream(relay, recovery, self._owner.clock, raw=self._chunks(), again=self._again())
        return self._stream

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """An answer that came in one piece."""
        return self._owner.recovery(self._request(), self._tally).whole(body)

    def turn_raw(self, failed: ParserFailed) -> None:
        """The engine's parser has failed: do without it."""
        self._owner.unparsed(self._model)
        self._role_given = failed.role_given
        self._head = failed.head
        self.raw = True

    async def emulate(self, client: EngineClient) -> Mapping[str, Any] | None:
        """The request with its tools in the prompt, where the engine's template has no place for them, else None."""
        if self._policy.mode == "native":
            return None
        facts = await self._owner.template_facts(client)
        return None if facts.tools else emulated(self._mended(), facts)

    async def raw_payload(self, client: EngineClient, body: Mapping[str, Any] | None) -> bytes | None:
        """The body of the raw route; None where the engine does not render the prompt."""
        asked = template_request(body or self._mended())
        async with client.post(TEMPLATE_PATH, json.dumps(asked).encode()) as rendered:
            answer = await rendered.json() if rendered.status == 200 else {}
        prompt = answer.get("prompt")
        if not isinstance(prompt, str):
            self.raw = False
            return None
        self._thinking = opens_thought(prompt)
        return json.dumps(completion_request(self._asked, prompt)).encode()

    def settle(self) -> None:
        """The answer is over."""
        failed = self._stream is not None and self._stream.error is not None
        if self._stream is not None and self._stream.error is not None and is_parser_s(self._stream.error):
            self._owner.unparsed(self._model)
        self._owner.settle(self._model, self._tally, failed=failed)

    def _chunks(self) -> RawChunks | None:
        if not self.raw:
            return None
        return RawChunks(self._head, with_usage=self._wants_usage(), with_role=not self._role_given)

    def _again(self) -> Again:
        """Whether, and how long, the answer may be asked for anew without the engine's parser."""
        if self.raw or self._policy.mode not in {"auto", "recover"} or not can_go_raw(self._asked):
            return Again.NEVER
        return Again.UNTIL_SAID if self._asked.get("stream") else Again.ALWAYS

    def _request(self) -> Request:
        options = self._policy.options(self._asked)
        if self.raw:
            options = replace(options, split_think=True, think_open=self._thinking)
        return Request(self._asked.get("tools"), self._asked.get("tool_choice"), options, self._owner.make_id)

    def _mended(self) -> Mapping[str, Any]:
        messages = mended_messages(self._asked.get("messages"))
        return self._asked if messages is None else {**self._asked, "messages": messages}

    def _wants_usage(self) -> bool:
        options = self._asked.get("stream_options")
        return not self._asked.get("stream") or (isinstance(options, Mapping) and bool(options.get("include_usage")))


def _new_head(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the chunks of an answer share."""
    return {"created": int(time.time()), "id": f"chatcmpl-{secrets.token_hex(16)}", "model": asked.get("model")}
