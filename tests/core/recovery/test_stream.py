"""Chunks of an engine in, chunks for a client out: what no engine does on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from supervisor.core.options.kinds import MOST_SLOTS
from supervisor.core.recovery import ChatRecovery, ParserFailed, RecoveredStream, Tally
from supervisor.core.recovery.again import Again, AskAgain, Ending, Judge, Nudged
from supervisor.core.recovery.arguments import ArgumentsGuard
from supervisor.core.recovery.stream import Ways
from supervisor.core.stream.chat import ChatFold
from supervisor.core.stream.filter import StreamFilter
from supervisor.core.stream.fold import StreamFold
from supervisor.core.toolcalls import Options
from supervisor.core.toolcalls.whole import Request
from supervisor.errors import EngineStreamInvalid
from tests.core.toolcalls.corpus import TOOLS

CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
UNPARSED = {"code": 500, "message": "The model produced output that does not match the expected peg-native format"}
SAID = {**UNPARSED, "code": "engine_error", "type": "server_error", "param": None}
"""What a client hears of it."""
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(delta: Mapping[str, Any], reason: str | None = None, index: int = 0) -> bytes:
    return event({**HEAD, "choices": [{"finish_reason": reason, "index": index, "delta": delta}]})


def event(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def native(arguments: str, name: str | None = "get_weather", index: int = 0) -> bytes:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    more = {} if name is None else {"id": "native", "type": "function"}
    return chunk({"tool_calls": [{"index": index, **more, "function": function}]})


DONE = b"data: [DONE]\n\n"
END = chunk({}, "stop") + DONE
NATIVE_END = chunk({}, "tool_calls") + DONE


class Client:
    """A stream of the relay, and what a client folds from it."""

    def __init__(self, again: Again = Again.NEVER, judge: Judge | None = None, lead: str = "", **options: Any) -> None:
        self.tally = Tally()
        numbers = count()
        recovery = ChatRecovery(Request(TOOLS, None, Options(**options)), lambda: f"call_{next(numbers)}", self.tally)
        self.now = 0.0
        self.stream = RecoveredStream(
            StreamFilter(drop_progress=True), recovery, lambda: self.now, Ways(again=again, judge=judge, lead=lead)
        )
        self.sent = b""

    def feed(self, *arrived: bytes) -> bytes:
        out = b"".join(self.stream.feed(one) for one in arrived)
        self.sent += out
        return out

    def choice(self, index: int = 0) -> dict[str, Any]:
        fold = StreamFold(ChatFold())
        fold.feed(self.sent)
        answer: Any = fold.response()
        choices: list[dict[str, Any]] = answer["choices"]
        return choices[index]

    def calls(self) -> list[tuple[str, str]]:
        calls = self.choice()["message"].get("tool_calls", [])
        return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]

    def deltas(self) -> Iterator[dict[str, Any]]:
        for line in self.sent.decode().splitlines():
            if line.startswith("data: {") and "choices" in line:
                yield json.loads(line[6:])["choices"][0]["delta"]


def test_plain_text_passes_as_the_engine_wrote_it() -> None:
    client = Client()
    whole = chunk({"role": "assistant", "content": None}) + chunk({"content": "Hi "}) + chunk({"content": "you"}) + END
    assert client.feed(whole) == whole


def test_a_call_in_the_text_is_one_delta() -> None:
    client = Client()
    client.feed(chunk({"role": "assistant", "content": None}), *(chunk({"content": one}) for one in "Hi. " + CALL), END)
    calls = [delta["tool_calls"] for delta in client.deltas() if "tool_calls" in delta]
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert calls == [[{"index": 0, "id": "call_0", "type": "function", "function": function}]]
    assert client.choice()["finish_reason"] == "tool_calls"
    assert client.choice()["message"]["content"] == "Hi. "


def test_a_native_call_passes_untouched() -> None:
    client = Client()
    whole = native("{") + native('"city": "Paris"}', None) + NATIVE_END
    assert client.feed(whole) == whole
    assert client.tally.native == 1


def test_native_calls_come_behind_those_of_the_text() -> None:
    client = Client()
    client.feed(chunk({"content": CALL}), native('{"city":', index=0), native('"Rome"}', None), NATIVE_END)
    assert client.calls() == [("get_weather", '{"city": "Paris"}'), ("get_weather", '{"city":"Rome"}')]
    assert client.choice()["message"]["tool_calls"][1]["id"] == "native"


@pytest.mark.parametrize("text_first", [True, False])
def test_a_call_given_both_ways_appears_once(text_first: bool) -> None:
    client = Client()
    text = chunk({"content": f"A{CALL}B"})
    parsed = native('{"city":"Paris"}')
    client.feed(*((text, parsed) if text_first else (parsed, text)), NATIVE_END)
    assert [name for name, _ in client.calls()] == ["get_weather"]
    assert client.choice()["message"]["content"] == "AB"
    assert client.tally.repeated == 1


def test_another_call_in_the_text_behind_a_native_one_stays_text() -> None:
    client = Client()
    other = CALL.replace("Paris", "Rome")
    client.feed(native('{"city":"Paris"}'), chunk({"content": f"A{CALL}\n{other} B"}), NATIVE_END)
    assert len(client.calls()) == 1
    assert client.choice()["message"]["content"].replace("\n", "") == f"A{other} B"


def test_broken_native_arguments_become_json() -> None:
    client = Client()
    client.feed(native('{"city": "a\nb'), native('\tc"', None), NATIVE_END)
    assert json.loads(client.calls()[0][1]) == {"city": "a\nb\tc"}
    client = Client()
    client.feed(native("", "ping"), native('{"city": ["x"', index=1), NATIVE_END)
    assert client.calls() == [("ping", "{}"), ("get_weather", '{"city": ["x"]}')]


def test_a_native_call_that_was_cut_stays_cut() -> None:
    client = Client()
    client.feed(native('{"city": "Par'), chunk({}, "length") + DONE)
    assert client.calls() == [("get_weather", '{"city": "Par')]
    assert client.choice()["finish_reason"] == "length"


def test_every_choice_has_an_automaton_of_its_own() -> None:
    client = Client()
    for one in CALL:
        client.feed(chunk({"content": one}), chunk({"content": "x"}, index=1))
    client.feed(chunk({}, "stop"), chunk({}, "stop", 1), DONE)
    assert len(client.choice()["message"]["tool_calls"]) == 1
    assert client.choice(1)["message"]["content"] == "x" * len(CALL)
    assert (client.choice()["finish_reason"], client.choice(1)["finish_reason"]) == ("tool_calls", "stop")


def test_an_error_behind_a_complete_call_ends_the_stream_well() -> None:
    client = Client()
    client.feed(chunk({"content": CALL}), event({"error": UNPARSED}))
    assert (client.stream.done, client.stream.error) == (True, None)
    assert client.choice()["finish_reason"] == "tool_calls"
    assert client.tally.saved


def test_an_error_behind_half_a_call_is_an_error_and_the_text_is_not_lost() -> None:
    client = Client()
    client.feed(native('{"city": "Paris"}'), native('{"ci', index=1), event({"error": UNPARSED}))
    assert client.stream.error == SAID
    assert json.loads(client.sent.split(b"data: ")[-2]) == {"error": SAID}
    assert client.sent.endswith(DONE)
    client = Client()
    client.feed(chunk({"content": "Hi <tool_call>{"}), event({"error": UNPARSED}))
    assert "".join(delta["content"] for delta in list(client.deltas())[:2]) == "Hi <tool_call>{"


def test_the_text_in_an_older_engine_s_error_is_read() -> None:
    client = Client()
    message = f"Failed to parse input at pos 12: {CALL}"
    client.feed(chunk({"role": "assistant", "content": None}), event({"error": {"code": 500, "message": message}}))
    assert client.calls() == [("get_weather", '{"city": "Paris"}')]


def test_a_parser_s_error_before_any_text_asks_for_another_try() -> None:
    client = Client(Again.UNTIL_SAID)
    client.feed(chunk({"role": "assistant", "content": None}))
    with pytest.raises(ParserFailed) as failed:
        client.feed(event({"error": UNPARSED}))
    assert (failed.value.before, failed.value.keeps) == (b"", True)
    assert failed.value.head["id"] == "chatcmpl-1"
    client = Client(Again.UNTIL_SAID)
    with pytest.raises(ParserFailed) as failed:
        client.feed(chunk({"role": "assistant", "content": None}) + event({"error": UNPARSED}))
    assert failed.value.before == chunk({"role": "assistant", "content": None}), "to be sent yet"
    client = Client(Again.UNTIL_SAID)
    client.feed(chunk({"content": "Hi"}), event({"error": UNPARSED}))
    assert client.stream.error == SAID
    client = Client(Again.ALWAYS)
    with pytest.raises(ParserFailed):
        client.feed(chunk({"content": "Hi"}), event({"error": UNPARSED}))
    client = Client(Again.ALWAYS)
    client.feed(event({"error": {"code": 400, "message": "context full"}}))
    assert client.stream.error is not None


def test_a_comment_keeps_the_connection_alive_while_a_call_is_held() -> None:
    client = Client()
    assert client.feed(chunk({"content": CALL[:20]})) == b""
    client.now = 3.0
    assert client.feed(chunk({"content": CALL[20:22]})) == b": keep-alive\n\n"
    assert client.feed(chunk({"content": CALL[22:24]})) == b""
    client.feed(chunk({"content": CALL[24:]}), END)
    assert len(client.calls()) == 1


def test_what_is_held_is_given_out_where_the_engine_breaks_off() -> None:
    client = Client()
    client.feed(chunk({"content": "Hi <tool_call>"}))
    ending = client.stream.ending({"message": "gone"})
    assert b"<tool_call>" in ending
    assert ending.endswith(DONE)
    assert client.stream.ending({"message": "gone"}) == b""


def test_without_a_finish_reason_nothing_is_lost() -> None:
    client = Client()
    client.feed(chunk({"content": "5 <"}), DONE)
    assert client.choice()["message"]["content"] == "5 <"


def test_native_mode_finds_nothing_in_text() -> None:
    client = Client(enabled=False)
    client.feed(chunk({"content": CALL}), END)
    assert client.choice()["message"]["content"] == CALL


@pytest.mark.parametrize("index", [0, 1], ids=["one", "each"])
def test_more_choices_than_an_engine_has_slots_are_no_answer(index: int) -> None:
    """Each is looked into on its own: 60,000 of them held everybody up for 14 s."""
    choices = [{"index": number * index, "delta": {"content": "a"}} for number in range(MOST_SLOTS + 1)]
    client = Client()
    client.feed(event({**HEAD, "choices": choices[:-1]}))
    with pytest.raises(EngineStreamInvalid, match="more than 256 choices"):
        Client().feed(event({**HEAD, "choices": choices}))
    if index:
        with pytest.raises(EngineStreamInvalid, match="more than 256 choices"):
            client.feed(event({**HEAD, "choices": choices[-1:]}))


def test_more_calls_at_once_than_a_model_makes_are_no_answer() -> None:
    calls: list[Any] = [{"index": number, "function": {"name": "f", "arguments": "{"}} for number in range(1025)]
    Client().feed(chunk({"tool_calls": calls[:-1]}))
    with pytest.raises(EngineStreamInvalid, match="more than 1024 tool calls"):
        Client().feed(chunk({"tool_calls": calls}))
    whole: Any = {"choices": [{"index": 0, "message": {"tool_calls": calls}}]}
    with pytest.raises(EngineStreamInvalid, match="more than 1024 tool calls"):
        ChatRecovery(Request(TOOLS), lambda: "call_x", Tally()).whole(whole)


def test_what_each_chunk_of_an_event_repeats_has_a_bound() -> None:
    """256 choices beside a field of 15 MiB would be 4 GB."""
    choices = [{"index": number, "delta": {"content": "a"}} for number in range(MOST_SLOTS)]
    with pytest.raises(EngineStreamInvalid, match="becomes more than"):
        Client().feed(event({**HEAD, "system_fingerprint": "x" * (15 << 20), "choices": choices}))


def test_an_answer_in_one_piece() -> None:
    tally = Tally()
    recovery = ChatRecovery(Request(TOOLS), lambda: "call_x", tally)
    message = {"role": "assistant", "content": f"Hi. {CALL}", "refusal": None}
    answer: Any = {
        "id": "a",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": []}}],
    }
    choice: Any = recovery.whole(answer)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Hi. "
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert choice["logprobs"] == {"content": []}


def events_of(stream: bytes) -> list[Any]:
    texts = [event.removeprefix("data: ") for event in stream.decode().split("\n\n")[:-1]]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


class Judging:
    """Keeps what it is asked, and answers with a nudge where it is told to."""

    def __init__(self, *, nudges: bool) -> None:
        self.endings: list[Ending] = []
        self._nudges = nudges

    def __call__(self, ending: Ending) -> AskAgain | None:
        self.endings.append(ending)
        return Nudged(ending.head, ending.text) if self._nudges else None


def test_an_ending_without_a_call_is_judged_and_else_unchanged() -> None:
    usage = event({**HEAD, "choices": [], "usage": {"completion_tokens": 30}})
    for arrived in ([chunk({"content": "Häm"}) + chunk({}, "stop"), usage, DONE], [chunk({"content": "Häm"}) + END]):
        judging = Judging(nudges=False)
        client = Client(judge=judging)
        assert events_of(client.feed(*arrived)) == events_of(b"".join(arrived))
        (ending,) = judging.endings
        assert (ending.text, ending.size) == ("Häm", 4)
        assert ending.tokens == (30 if len(arrived) == 3 else None)
        assert ending.lacks_text is (len(arrived) == 3)


def test_nothing_but_a_stop_without_a_call_is_judged() -> None:
    judging = Judging(nudges=True)
    Client(judge=judging).feed(chunk({"content": CALL}) + END)
    Client(judge=judging).feed(native("{}") + NATIVE_END)
    Client(judge=judging).feed(chunk({"content": "Hm"}) + chunk({}, "length") + DONE)
    assert judging.endings == []


def test_what_was_said_before_another_try_is_not_lost() -> None:
    client = Client(judge=Judging(nudges=True))
    with pytest.raises(Nudged) as nudged:
        client.feed(chunk({"content": "I'll look."}) + END)
    assert nudged.value.before == chunk({"content": "I'll look."})
    assert (nudged.value.said, nudged.value.keeps) == ("I'll look.", True)


def test_a_lead_goes_before_the_first_text_only() -> None:
    client = Client(lead="\n\n")
    client.feed(chunk({"role": "assistant", "content": None}) + chunk({"content": "a"}) + chunk({"content": "b"}) + END)
    assert client.choice()["message"]["content"] == "\n\nab"
    client = Client(lead="\n\n")
    client.feed(chunk({"content": CALL}) + END)
    assert client.choice()["message"]["content"] == ""


@pytest.mark.parametrize(("size", "tokens", "lacks"), [(0, 9, True), (0, 8, False), (100, 50, False), (3, None, False)])
def test_a_token_of_text_has_a_byte_at_least(size: int, tokens: int | None, lacks: bool) -> None:
    assert Ending("", size, tokens, {}).lacks_text is lacks


def test_markup_behind_an_engine_s_call_is_text_unless_it_repeats_the_call() -> None:
    """Markup that stands before any call in the text is nobody's call."""
    thought = "<think>Hm.</think>\nThat is it."
    client = Client()
    client.feed(native('{"city": "Paris"}'), chunk({"content": thought}), END)
    message = client.choice()["message"]
    said = message.get("reasoning_content", "") + message["content"]
    assert sorted(said) == sorted(thought), "not a character less"
    assert len(client.calls()) == 1


def test_line_ends_of_an_engine_s_arguments_are_escaped_in_strings_alone() -> None:
    client = Client()
    client.feed(native('{\n  "city": "a\nb'), native('c\\\\"\n}', None), NATIVE_END)
    assert client.calls() == [("get_weather", '{\n  "city": "a\\nbc\\\\"\n}')]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_quote_behind_a_backslash_does_not_end_a_string(size: int) -> None:
    guard = ArgumentsGuard()
    text = '{"a": "b\\"\n", "c": "d\\\\"\n}'
    said = "".join(guard.feed(text[start : start + size]) for start in range(0, len(text), size))
    assert said == guard.text == '{"a": "b\\"\\n", "c": "d\\\\"\n}'
    assert guard.is_whole()


@pytest.mark.parametrize("fact", ["prompt_progress", "__verbose"])
def test_what_a_chunk_says_beside_its_text_goes_on_while_that_is_held_back(fact: str) -> None:
    recovery = ChatRecovery(Request(TOOLS, None, Options()), lambda: "call", Tally())
    held: Any = {**HEAD, "choices": [{"finish_reason": None, "index": 0, "delta": {"content": "<tool_"}}]}
    with_fact: Any = dict(held) | {fact: {"total": 9}}
    told: Any
    [told] = recovery.feed(with_fact)
    assert (told[fact], told["choices"][0]["delta"]) == ({"total": 9}, {})
    more: Any = {"finish_reason": None, "index": 0, "delta": {"content": "call>"}}
    going_on: Any = dict(held) | {"choices": [more]}
    assert recovery.feed(going_on) == []


def test_a_call_that_the_model_does_not_end_is_told_as_too_short() -> None:
    """Its beginning is out already: to a client that is a call which the limit of tokens has cut."""
    client = Client(pieces_after=4)
    client.feed(chunk({"content": '<tool_call>{"name": "write_file", "arguments": {"content": "abcdefghijkl'}))
    sent = client.feed(END)
    assert (
        json.loads(sent.removesuffix(b"\n\n" + DONE).removeprefix(b"data: "))["choices"][0]["finish_reason"] == "length"
    )
