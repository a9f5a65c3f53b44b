"""What holds for any text: nothing raises, nothing is lost, little is held back, cost grows with length."""

from __future__ import annotations

import sys
import sysconfig
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.core.toolcalls import REGISTRY, CallStart, Dropped, Options, Recoverer, Text, counted_ids
from tests.core.toolcalls.corpus import TOOLS, Case, closers, dialects, malformations, negatives
from tests.core.toolcalls.support import folded, recover
from tests.support.llama_source import llama_source

CASES = [*dialects.CASES, *malformations.CASES, *closers.CASES, *negatives.CASES]
FRAGMENTS = [
    *(*REGISTRY.openers, *REGISTRY.line_openers, *sorted(REGISTRY.closers)),
    *(*REGISTRY.think, *REGISTRY.think.values()),
    *(
        "get_weather",
        "city",
        "Paris",
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        ":",
        ",",
        "\n",
        " ",
        "`",
        "```",
        "(",
        ")",
        "=",
        "\\",
    ),
    *('{"name": "get_weather", "arguments": {', '"city": "Paris"}', "<parameter=city>", '<parameter name="city">'),
    *("<arg_key>", "</arg_key>", "<arg_value>", "functions.", "null", "1.5", "<tool", "<|", "<｜", "é", "\0", "\ud800"),
]
SOUP = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=30).map("".join)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A corpus text with some places cut, doubled or replaced."""
    text = draw(st.sampled_from(CASES)).text
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 12)))
        middle = draw(st.one_of(st.sampled_from(FRAGMENTS), st.just(""), st.just(text[start:stop] * 2)))
        text = text[:start] + middle + text[stop:]
    return text


TEXTS = st.one_of(SOUP, mutated(), st.text(max_size=60))
REASONS = st.sampled_from(["stop", "length", None])


@settings(max_examples=1500, deadline=None)
@given(TEXTS, REASONS, st.lists(st.integers(1, 9), min_size=1, max_size=6), st.booleans())
@example("<tool_call>get_weather\n<arg_key>", "stop", [1], False)
def test_any_text_in_any_pieces(text: str, reason: str | None, sizes: list[int], streams: bool) -> None:
    """Never raises, never loses a character, and says the same however the text is cut."""
    options: dict[str, Any] = {"pieces_after": 0 if streams else None}
    case = Case("x", text, finish=reason or "error")
    whole = recover(case, **options)
    pieces: list[str] = []
    start = 0
    while start < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[start : start + size])
        start += size
    assert recover(case, pieces, **options) == whole
    assert recover(case, text, **options) == whole
    fed = whole.raw["reasoning"] + whole.raw["content"]
    assert len(fed) == len(text)
    assert fed == text or whole.raw["reasoning"]
    if not whole.calls and not whole.raw["reasoning"]:
        assert whole.content == text or text.lstrip().startswith(tuple(REGISTRY.think))
    for complete, (_, arguments) in zip(whole.complete, whole.calls, strict=True):
        assert not complete or folded_object(arguments)


def folded_object(arguments: str) -> bool:
    import json  # noqa: PLC0415 - one use

    return isinstance(json.loads(arguments), dict)


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_events_of_both_channels_are_well_formed(text: str) -> None:
    half = len(text) // 2
    recoverer = Recoverer(TOOLS)
    events = [
        *recoverer.feed("reasoning", text[:half]),
        *recoverer.feed("content", text[half:]),
        *recoverer.finish("stop"),
    ]
    result = folded(events)
    assert len(result.raw["reasoning"]) + len(result.raw["content"]) == len(text)
    assert len(set(result.ids)) == len(result.ids)


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="abc <>[]{}().,:;\n\t`~#-_*=\"'✿｜|/é", max_size=200))
def test_running_text_is_held_back_by_less_than_28_characters(text: str) -> None:
    text = "Hello. " + text  # past the start, where a whole message may be a call
    recoverer = Recoverer(TOOLS)
    given_out = 0
    for count, character in enumerate(text, 1):
        given_out += sum(len(event.text) for event in recoverer.feed("content", character) if isinstance(event, Text))
        assert count - given_out < 28
    given_out += sum(len(event.text) for event in recoverer.finish("stop") if isinstance(event, Text))
    assert given_out == len(text)


@pytest.mark.parametrize("case", negatives.CASES, ids=lambda case: case.id)
def test_a_header_is_held_back_by_no_more_than_a_name(case: Case) -> None:
    """Text that is not a call is let go of early; whole messages and the bodies of calls excepted."""
    lead = case.text[:1] in {"{", "[", "`"}
    bodies = ("broken", "no-name", "deep", "tool-code", "fence-call", "python-list", "unknown-cohere", "unknown-action")
    if lead or case.id.removeprefix("N-").startswith(bodies):
        return
    recoverer = Recoverer(TOOLS)
    given_out = 0
    for count, character in enumerate(case.text, 1):
        given_out += sum(len(event.text) for event in recoverer.feed("content", character) if isinstance(event, Text))
        assert count - given_out <= 27 + 256 + 64


def test_text_without_a_marker_leaves_at_once() -> None:
    recoverer = Recoverer(TOOLS)
    for piece in ["Sure", ", one moment", ".\n", "\nIt is ", "5 °C", "\n- a", " b\n\n", "d"]:
        assert recoverer.feed("content", piece) == [Text("content", piece)]
    assert recoverer.finish("stop") == []


def test_the_worked_trace() -> None:
    recoverer = Recoverer(TOOLS, make_id=lambda: "call_x")
    pieces = [
        "Sure",
        ", one sec <",
        "b>now</b>. <tool",
        '_call>\n{"na',
        'me": "get_we',
        'ather", "arguments": {"city": "Par',
    ]
    text = [[event.text for event in recoverer.feed("content", piece) if isinstance(event, Text)] for piece in pieces]
    assert text == [["Sure"], [", one sec "], ["<b>now</b>. "], [], [], []]
    events = recoverer.feed("content", 'is"}}\n</tool_c')
    assert CallStart(0, "get_weather", "call_x", "hermes") in events, "at the last bracket, before the closing tag"
    assert all(
        isinstance(event, Dropped) for event in [*recoverer.feed("content", "all>\n"), *recoverer.finish("stop")]
    )


def test_a_long_argument_is_given_out_while_it_comes() -> None:
    for head, tail in (
        ('<tool_call>\n{"name": "write_file", "arguments": {"path": "a", "content": "', '"}}\n</tool_call>'),
        (
            "<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n",
            "\n</parameter>\n</function>",
        ),
    ):
        recoverer = Recoverer(TOOLS, options=Options(pieces_after=512))
        events = recoverer.feed("content", head)
        late = 0
        for _ in range(400):
            events += (now := recoverer.feed("content", "0123456789"))
            late += not now
        assert late < 60
        result = folded([*events, *recoverer.feed("content", tail), *recoverer.finish("stop")])
        assert result.parsed() == (("write_file", {"path": "a", "content": "0123456789" * 400}),)


def test_ids_are_unique() -> None:
    make_id = counted_ids()
    assert len({make_id() for _ in range(100_000)}) == 100_000


def test_a_structured_call_ends_recovery() -> None:
    recoverer = Recoverer(TOOLS)
    assert recoverer.feed("content", "Hm <tool_call>\n{") == [Text("content", "Hm ")]
    assert folded(recoverer.structured()).content == "<tool_call>\n{"
    text = '<tool_call>\n{"name": "ping"}\n</tool_call>'
    assert recoverer.feed("content", text) == [Text("content", text)]
    assert recoverer.finish("stop") == []


def test_calls_last() -> None:
    recoverer = Recoverer(TOOLS, options=Options(tool_calls_last=True))
    before = recoverer.feed("content", '<tool_call>\n{"name": "ping"}\n</tool_call> and more')
    assert not any(isinstance(event, CallStart) for event in before)
    assert folded([*before, *recoverer.finish("stop")]).calls == (("ping", "{}"),)
    assert folded(before).content == " and more"


# -- cost --------------------------------------------------------------------------------------------------------------

HEADS = {
    "openers": "<tool_call>",
    "brackets": "[",
    "json heads": '{"name": "get_weather", "arguments": {',
    "tagged heads": '<tool_call>{"name": "get_weather", "arguments": {',
    "tagged strings": '<tool_call>{"name": "get_weather", "arguments": {"city": "',
    "functions": "<function=get_weather>",
    "parameters": "<function=get_weather><parameter=city>",
    "lines of parameters": "<function=get_weather>\n<parameter=city>\n",
    "closers": "</parameter>",
    "closers in a value": "</parameter> x",
    "doubtful ends": "<function=get_weather><parameter=city>x</parameter></function> and ",
    "doubtful ends in a value": "</parameter></function> x",
    "calls in values": "<function=get_weather><parameter=city>" * 2 + "</parameter></function>",
    "calls in pairs": "<tool_call>get_weather<arg_key>city</arg_key><arg_value>" * 2 + "</arg_value></tool_call>",
    "parameters in a value": "<parameter=days>",
    "kimi 3": '<|open|>call tool="ping"<|sep|><|open|>argument key="city"<|sep|>' * 2 + "<|close|>argument<|sep|>",
    "gemma tokens": '<|"|>,city:<|"|>}',
    "pairs": "<tool_call>get_weather<arg_key>city</arg_key><arg_value>",
    "gemma": '<|tool_call>call:get_weather{city:<|"|>',
    "gemma bare": "call:get_weather{city:a,\n",
    "python": "<|tool_call_start|>[get_weather(city='",
    "fences": "```tool_code\nget_weather(city='\n",
    "backticks": "`",
    "lines": "\n",
    "spaces": " ",
    "less": "<",
    "flowers": "✿",
    "prefixes": "<abc:invoke ",
    "kimi": "<|tool_calls_section_begin|>",
    "think": "</think>{",
    "ends": "<|im_end|>",
    "minimax": ']<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>',
    "harmony": "<|channel|>commentary to=get_weather<|message|>{",
    "quotes": '"',
    "escapes": "\\",
    "escaped quotes": '\\"',
    "words": "city=a ",
}
PREFIXES = {
    "": "",
    "after a call": '<tool_call>{"name": "ping"}</tool_call>',
    "in a string": '{"name": "write_file", "arguments": {"content": "',
}
VALUES = {
    "in a parameter": "<function=get_weather><parameter=city>",
    "in a gemma string": '<|tool_call>call:get_weather{city:<|"|>',
}
IN_LINES = {
    "in a shell's string": '```tool_code\nget_weather "',
    "behind a shell's string": "```tool_code\nget_weather 'Paris' ",
}
IN_VALUES = ("closers", "closers in a value", "doubtful ends in a value", "calls in values", "gemma tokens")
OF_LINES = ("quotes", "escapes", "escaped quotes", "words")
COSTS = [
    *((f"{head}, {name}", prefix + "\0" + HEADS[head]) for head in HEADS for name, prefix in PREFIXES.items()),
    *((f"{head}, {name}", prefix + "\0" + HEADS[head]) for head in IN_VALUES for name, prefix in VALUES.items()),
    *((f"{head}, {name}", prefix + "\0" + HEADS[head]) for head in OF_LINES for name, prefix in IN_LINES.items()),
]


def seconds(text: str, size: int) -> float:
    begun = time.process_time()
    recoverer = Recoverer(TOOLS)
    for start in range(0, len(text), size):
        recoverer.feed("content", text[start : start + size])
    recoverer.finish("stop")
    return time.process_time() - begun


@pytest.mark.cost
@pytest.mark.parametrize("begun", [text for _, text in COSTS], ids=[name for name, _ in COSTS])
@pytest.mark.parametrize("length", [12_000, pytest.param(40_000, marks=pytest.mark.full)])
def test_cost_grows_no_faster_than_length(length: int, begun: str) -> None:
    """Twice the text in about twice the time; generous, since a quadratic cost would show as four times at least.

    The longer texts tell what only copies too much.
    """
    prefix, head = begun.split("\0")
    short = prefix + head * (length // len(head))
    long = prefix + head * (4 * length // len(head))
    for size in (8, 1 << 30):
        once = min(seconds(short, size) for _ in range(2))
        ratio = seconds(long, size) / max(once, 0.004)
        if ratio > 8:
            ratio = seconds(long, size) / max(min(seconds(short, size) for _ in range(3)), 0.004)
        assert ratio < 8, f"four times the text took {ratio:.1f} times as long"


@pytest.mark.cost
@pytest.mark.parametrize("make", [lambda n: "plain text, " * (n // 12), lambda n: "<a href='x'>" * (n // 12)])
def test_memory_does_not_grow_with_the_text(make: Callable[[int], str]) -> None:
    text = make(1_000_000)
    recoverer = Recoverer(TOOLS)
    recoverer.feed("content", text[:1000])
    tracemalloc.start()
    try:
        for start in range(1000, len(text), 64):
            recoverer.feed("content", text[start : start + 64])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_a_call_that_never_ends_is_let_go_of() -> None:
    recoverer = Recoverer(TOOLS, options=Options(max_hold=10_000, pieces_after=None))
    head = '<tool_call>{"name": "write_file", "arguments": {"content": "'
    said = recoverer.feed("content", head)
    for _ in range(200):
        said += recoverer.feed("content", "x" * 100)
    assert sum(len(event.text) for event in said if isinstance(event, Text)) >= 20_000
    assert folded([*said, *recoverer.finish("stop")]).content == head + "x" * 20_000


@pytest.mark.cost
def test_one_argument_of_a_megabyte() -> None:
    body = "0123456789" * 100_000
    text = f'<tool_call>{{"name": "write_file", "arguments": {{"content": "{body}"}}}}</tool_call>'
    pieces = [text[start : start + 16] for start in range(0, len(text), 16)]
    result = recover(Case("x", text), pieces, pieces_after=512)
    assert result.parsed() == (("write_file", {"content": body}),)


# -- text that nobody wrote for this -----------------------------------------------------------------------------------


def ordinary_files(suffixes: tuple[str, ...], limit: int) -> list[Path]:
    """Files of the Python that runs us and of what is installed beside it."""
    found: list[Path] = []
    size = 0
    for root in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")):
        for path in sorted(Path(root).rglob("*")):
            if path.suffix in suffixes and path.is_file() and size < limit:
                found.append(path)
                size += path.stat().st_size
    return found


@pytest.mark.full
def test_no_call_is_found_in_megabytes_of_ordinary_text() -> None:
    size = 0
    for path in ordinary_files((".py", ".md", ".rst", ".txt", ".html", ".json", ".js", ".jinja"), 30_000_000):
        text = path.read_text("utf-8", errors="replace")
        size += len(text)
        result = recover(Case("x", text))
        assert result.calls == (), path
        assert result.content == text
    assert size > 5_000_000, sys.path


@pytest.mark.full
def test_no_call_is_found_in_the_engine_s_source() -> None:
    """Templates, documents and tests of llama.cpp; one of its tests holds real calls of a tool that is offered here."""
    size = 0
    for path in sorted(llama_source().rglob("*")):
        if path.suffix not in {".jinja", ".md", ".cpp", ".h", ".py"} or path.name == "test-chat.cpp":
            continue
        text = path.read_text("utf-8", errors="replace")
        size += len(text)
        assert recover(Case("x", text)).calls == (), path
    assert size > 5_000_000


@pytest.mark.cost
def test_no_call_is_found_in_a_little_ordinary_text() -> None:
    for path in ordinary_files((".txt", ".html", ".py"), 1_500_000):
        text = path.read_text("utf-8", errors="replace")
        assert recover(Case("x", text)).content == text
