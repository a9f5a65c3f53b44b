"""Watch requests for tool calls in the relay: which ones, what an answer becomes, counters and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, cast
from weakref import WeakKeyDictionary

import structlog

from supervisor.core.models.registry import ModelEntry
from supervisor.core.recovery import AskAgain, ChatRecovery, RecoveredStream, Tally, ToolPolicy, mended_messages
from supervisor.core.recovery.again import Again, Ending, Judge, Nudged, ParserFailed
from supervisor.core.recovery.emulate import TemplateFacts, emulated
from supervisor.core.recovery.forms import CHAT_PATH, Form
from supervisor.core.recovery.help import FIELD as HELP_FIELD
from supervisor.core.recovery.help import AgentHelp, announces, asked_help, nudged, with_warnings
from supervisor.core.recovery.history import mended_input
from supervisor.core.recovery.policy import FIELD, asked_mode, offers_tools, only_named
from supervisor.core.recovery.raw import (
    TEMPLATE_PATH,
    RawChunks,
    can_go_raw,
    completion_request,
    opens_thought,
    template_request,
)
from supervisor.core.recovery.stream import Ways, is_parser_s
from supervisor.core.recovery.thoughts import FIELD as THOUGHTS_FIELD
from supervisor.core.recovery.thoughts import Thoughts, answered, shows_thoughts
from supervisor.core.recovery.typed import Chunk, Head, Usage
from supervisor.core.recovery.usage import added
from supervisor.core.recovery.voices import ChatVoice, Voice
from supervisor.core.routes import route_of
from supervisor.core.stream.chat import asks_for_one
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.text.foreignjson import escaped
from supervisor.core.text.members import set_fields, without
from supervisor.core.toolcalls.known import KnownTools
from supervisor.core.toolcalls.mode import ToolMode
from supervisor.core.toolcalls.recoverer import tools_of
from supervisor.core.toolcalls.whole import Request
from supervisor.engines.client import EngineClient, Payload
from supervisor.proxy.bodies import ClientJson
from supervisor.proxy.counts import Counts
from supervisor.proxy.heads import call_id, new_head
from supervisor.proxy.spoken import PLAIN, Plain, Spoken
from supervisor.proxy.turns import Turns, turns_of

Json: TypeAlias = Mapping[str, object]

_log = structlog.get_logger()
_OURS = frozenset({FIELD, HELP_FIELD, THOUGHTS_FIELD})
_ANY_CHAT = ({"role": "user", "content": "Hi"},)
_MOST_RAW = 1 << 20  # bytes of a request of which the engine's rendered prompt is read
_READ_LATER = 1 << 16  # bytes of a request whose tools are read one by one, as they are called
_AT_ONCE = 1 << 14  # characters of a prompt that are written on the loop that relays


class ToolCalls:
    """The decisions per request, and the memory per model.

    Args:
        default: the server's mode now.
        make_id: see `call_id`.
        clock: seconds.
    """

    def __init__(
        self,
        default: Callable[[], ToolMode] = lambda: "auto",
        make_id: Callable[[], str] = call_id,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: dict[str, Counts] = {}
        self.tools = KnownTools()
        self._default = default
        self.make_id = make_id
        self.clock = clock
        self._unparsable: set[str] = set()
        self._facts: WeakKeyDictionary[EngineClient, TemplateFacts] = WeakKeyDictionary()

    def prepare(
        self, path: str, request: ClientJson, entry: ModelEntry, form: Form | None = None, *, chats: bool = False
    ) -> Prepared:
        """Return the request to the engine and the watch over its answer. Raise InvalidRequest.

        form: of its API. chats: the engine knows no other API that a chat can be asked by.
        """
        body, asked = request.text, request.fields
        form = form or _form_of(path)
        if form is None:
            return Prepared(path, body, asked)
        mode = asked_mode(asked, entry.tool_calls, self._default())
        helping = asked_help(asked)
        thoughts = shows_thoughts(asked, entry.requests.reasoning_only)
        stripped = {key: value for key, value in asked.items() if key not in _OURS}
        if len(stripped) < len(asked):
            asked, body = stripped, without(body, _OURS)
            request = replace(request, fields=asked, text=body)
        limited = path != CHAT_PATH and entry.requests.max_seconds is not None
        always = form.always or thoughts or limited or (chats and path != CHAT_PATH)
        if mode == "off":
            return plainly(path, request, always=always, thoughts=thoughts, form=form)
        chat = form.chat(asked) if not request.opaque else None
        if chat is None:
            return Prepared(path, body, asked)
        changes = _changes(chat, helping)
        if not offers_tools(chat):
            turns = turns_of({**chat, **changes}, request, self.template_facts)
            if always or (turns is not None and path != CHAT_PATH):
                return _spoken(form, {**chat, **changes}, asked, thoughts=thoughts, turns=turns)
            own = changes if path == CHAT_PATH else mended_input(asked)
            return Prepared(path, set_fields(body, own), {**asked, **own}, PLAIN if turns is None else Plain(turns))
        if path != CHAT_PATH:
            body = escaped(chat)
        needs = form.needs(chat)
        chat = {**chat, **changes, **(needs if chat.get("stream") else {})}
        watch = Watch(self, (ToolPolicy(mode), helping, form), entry.id, chat, request, thoughts=thoughts)
        return Prepared(CHAT_PATH, set_fields(body, changes), chat, watch, needs=needs)

    def record(self, model: str, tally: Tally, *, failed: bool) -> None:
        """Count an answer and log it."""
        self.counts.setdefault(model, Counts()).add(tally, failed=failed)
        if tally.recovered or tally.saved or failed:
            _log.info(
                "tool_calls_recovered", model=model, calls=dict(tally.recovered), saved=tally.saved, failed=failed
            )
        for text in tally.dropped:
            _log.debug("tool_call_markup", model=model, text=text)

    async def template_facts(self, client: EngineClient) -> TemplateFacts:
        """Return the facts that an engine tells of its template; it is asked once."""
        if client not in self._facts:
            async with client.get("/props") as answer:
                self._facts[client] = TemplateFacts.from_props(await answer.json_object())
        return self._facts[client]

    def forget(self, model: str) -> None:
        """Forget a model that is gone."""
        self.counts.pop(model, None)
        self._unparsable.discard(model)

    def unparsed(self, model: str) -> None:
        """Note that the engine's parser failed on this model: requests with mode `auto` then leave it out."""
        if model not in self._unparsable:
            _log.warning("engine_parser_failed", model=model, then="raw")
        self._unparsable.add(model)

    def goes_raw(self, policy: ToolPolicy, model: str) -> bool:
        """Return whether the engine's parser is to be left out."""
        return policy.mode == "raw" or (policy.mode == "auto" and model in self._unparsable)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request for the engine.

    Attributes:
        path, body: to ask; what the body says, as `asked`.
        way: what becomes of the answer.
        needs: further fields for the engine, whether it is asked for a stream or not.
        native: the engine is asked in llama-server's own way.
    """

    path: str
    body: bytes
    asked: Mapping[str, object]
    way: Plain = PLAIN
    needs: Mapping[str, object] = field(default_factory=dict)
    native: bool = True


def plainly(
    path: str, request: ClientJson, *, always: bool | None = None, thoughts: bool = False, form: Form | None = None
) -> Prepared:
    """Return the request to the engine where nothing is looked for in the answer.

    Args:
        always: whether it is asked for a chat all the same; None: as the form has it, which else is the path's.
        thoughts: a reply of nothing but thoughts is the answer.
    """
    form, asked = form or _form_of(path), request.fields
    wanted = form is not None and (form.always if always is None else always)
    chat = form.chat(asked) if form is not None and wanted and not request.opaque else None
    return (
        Prepared(path, request.text, asked)
        if form is None or chat is None
        else _spoken(form, chat, asked, thoughts=thoughts)
    )


def _form_of(path: str) -> Form | None:
    route = route_of(path)
    return None if route is None else route.form


def _spoken(form: Form, chat: Json, asked: Json, *, thoughts: bool, turns: Turns | None = None) -> Prepared:
    spoken = Spoken(partial(form.voice, form.echoed(asked)), thoughts=thoughts, turns=turns)
    return Prepared(CHAT_PATH, escaped(chat), chat, spoken, needs=form.needs(chat))


class Watch(Plain):
    """A request whose answer may hold calls.

    Attributes:
        raw: the engine's parser is left out; `changed` finds that out.
    """

    rewrites = True
    looks = True

    def __init__(
        self,
        owner: ToolCalls,
        ways: tuple[ToolPolicy, AgentHelp, Form],
        model: str,
        chat: Mapping[str, object],
        request: ClientJson,
        *,
        thoughts: bool = False,
    ) -> None:
        super().__init__()
        self._policy, helping, form = ways
        self._owner = owner
        self._model = model
        self._asked = chat
        small = request.size <= _READ_LATER
        made = owner.tools.of if small else tools_of
        self._tools = made(chat.get("tools"), chat.get("tool_choice"), self._policy.options(chat))
        if not small:
            self._tools.read()
        self._request = request
        self._may_go_raw = self._can_go_raw()
        self.raw = owner.goes_raw(self._policy, model) and self._may_go_raw
        self._nudges = helping.nudges
        self._nudged = False
        self._new_voice: Callable[[], Voice] = partial(form.voice, form.echoed(request.fields))
        self._voice: Voice = self._new_voice()
        self.verbatim = self._voice.verbatim
        self._goes_on = False
        self._spent: Usage | None = None
        self._thoughts = thoughts
        self._tally = Tally()
        self._stream: RecoveredStream | None = None
        self._head: Head = new_head(chat)
        self._thinking = False

    def stream(self, relay: StreamFilter) -> RecoveredStream:
        """Return the filter of the answer's bytes; a new one for every try."""
        self._tally = Tally()
        if not self._goes_on:
            self._voice = self._new_voice()
        voice = self._voice if self._asked.get("stream") else ChatVoice()
        lead = "\n\n" if self._nudged else ""
        ways = Ways(
            *(self._chunks(), self._again(), self._judging(), voice, lead, self._spent),
            Thoughts() if self._thoughts else None,
        )
        self._stream = RecoveredStream(relay, self._recovery(), self._owner.clock, ways)
        return self._stream

    def answer(self, body: Mapping[str, object]) -> Mapping[str, object]:
        """Return an answer that came in one piece."""
        whole = self._recovery().whole(cast(Chunk, body))
        return self.said(answered(whole) if self._thoughts else whole)

    def said(self, answer: Mapping[str, object]) -> Mapping[str, object]:
        """Return a whole answer in the client's form."""
        return self._new_voice().whole(cast(Chunk, answer))

    def again(self, why: AskAgain, *, goes_on: bool) -> None:
        """Note that the engine is asked once more; `goes_on`: the client has the beginning."""
        self._goes_on = goes_on
        self._head = why.head or self._head
        self._spent = added(self._spent, why.usage)
        if isinstance(why, Nudged):
            self._nudges -= 1
            self._nudged = True
            self._asked = {**self._asked, "messages": nudged(self._asked.get("messages"), why.said)}
        else:
            self._owner.unparsed(self._model)
            self.raw = True

    async def changed(self, client: EngineClient) -> Mapping[str, object] | None:
        """Return the request, if it differs from the first one: nudged, or with its tools in the prompt.

        The latter is for templates that have no place for them. A template whose parser is known to swallow text sends
        the request on the raw way.
        """
        asked = self._asked if self._nudged else None
        if self._policy.mode == "native":
            return asked
        facts = await self._owner.template_facts(client)
        if self._policy.mode != "raw":
            self._may_go_raw = self._can_go_raw() and not facts.is_harmony
            wanted = self.raw or (self._policy.mode == "auto" and facts.swallows)
            self.raw = self._may_go_raw and wanted
        if facts.tools:
            turns = turns_of(self._asked, self._request, self._owner.template_facts)
            return asked if turns is None else await turns.changed(client) or asked
        if not await self._is_accepted(client):
            return asked
        return await self._request.work(partial(emulated, self._asked, facts))

    async def _is_accepted(self, client: EngineClient) -> bool:
        """Return whether the engine takes the request as it is. If not, its own words are the answer.

        Asked with another conversation: the template may refuse the client's, which is to be written anew.
        """
        asked = {**self._asked, "messages": _ANY_CHAT}
        async with client.post(TEMPLATE_PATH, await self._payload(asked)) as rendered:
            return rendered.status < 400

    async def _payload(self, asked: Mapping[str, object]) -> Payload:
        return await self._request.work(lambda: self._request.payload(escaped(asked)))

    async def raw_payload(self, client: EngineClient, body: Mapping[str, object] | None) -> bytes | None:
        """Return the body of the raw route; None where the engine does not render the prompt, or it is very long."""
        asked = template_request(body or self._asked)
        async with client.post(TEMPLATE_PATH, await self._payload(asked)) as rendered:
            answer = await rendered.json_object()
        prompt = answer.get("prompt")
        if not isinstance(prompt, str):
            self.raw = False
            return None
        self._thinking = opens_thought(prompt)
        write = partial(_completion, self._asked, prompt)
        return write() if len(prompt) <= _AT_ONCE else await asyncio.to_thread(write)

    def finish(self) -> int:
        """Note that the answer is over; return how many tool calls were seen in it."""
        failed = self._stream is not None and self._stream.error is not None
        if self._stream is not None and self._stream.error is not None and is_parser_s(self._stream.error):
            self._owner.unparsed(self._model)
        self._owner.record(self._model, self._tally, failed=failed)
        return self._tally.native + self._tally.recovered.total()

    def _can_go_raw(self) -> bool:
        return can_go_raw(self._asked) and self._request.size <= _MOST_RAW

    def _chunks(self) -> RawChunks | None:
        if not self.raw:
            return None
        stop_word = not self.verbatim
        return RawChunks(
            self._head, with_usage=self._wants_usage(), with_role=not self._goes_on, with_stop_word=stop_word
        )

    def _again(self) -> Again:
        """Return the condition on which the answer may be asked for anew without the engine's parser."""
        if self.raw or self._policy.mode not in {"auto", "recover"} or not self._may_go_raw:
            return Again.NEVER
        return Again.UNTIL_SAID if self._asked.get("stream") else Again.ALWAYS

    def _sought(self) -> Request:
        options = self._policy.options(self._asked)
        if self.raw:
            options = replace(options, split_think=True, think_open=self._thinking)
        return Request(self._tools, None, options, self._owner.make_id)

    def _recovery(self) -> ChatRecovery:
        goes_on = self._head if self._goes_on else None
        return ChatRecovery(self._sought(), self._owner.make_id, self._tally, goes_on)

    def _judging(self) -> Judge | None:
        wanted = self._nudges > 0 or self._again() is not Again.NEVER
        return self._judge if wanted and asks_for_one(self._asked) else None

    def _judge(self, ending: Ending) -> AskAgain | None:
        again = self._again()
        if again is not Again.NEVER and ending.lacks_text:
            self._tally.swallowed = True
            if again is Again.ALWAYS or not ending.size:
                return ParserFailed(ending.head, keeps=again is Again.UNTIL_SAID)
            self._owner.unparsed(self._model)
        return Nudged(ending.head, ending.text) if self._nudges > 0 and announces(ending.text) else None

    def _wants_usage(self) -> bool:
        options = self._asked.get("stream_options")
        return not self._asked.get("stream") or (isinstance(options, Mapping) and bool(options.get("include_usage")))


def _completion(asked: Mapping[str, object], prompt: str) -> bytes:
    return escaped(completion_request(asked, prompt))


def _changes(chat: Mapping[str, object], helping: AgentHelp) -> dict[str, object]:
    """Return the changes to any request for a chat: a mended history, a tool choice that the engine knows."""
    changes = only_named(chat)
    messages = mended_messages(chat.get("messages"))
    warned = with_warnings(messages or chat.get("messages")) if helping.repeats else None
    found = warned or messages
    return changes if found is None else {**changes, "messages": found}
