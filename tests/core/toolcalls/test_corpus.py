"""Every row of the corpora, fed whole, by character, by byte and in random pieces, atomic and in pieces."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.toolcalls import REGISTRY, Options, Recoverer
from supervisor.core.toolcalls.whole import Request, read_answer
from tests.core.toolcalls.corpus import TOOLS, Case, closers, dialects, malformations, negatives
from tests.core.toolcalls.support import Result, folded, recover

CASES = [*dialects.CASES, *malformations.CASES, *closers.CASES, *negatives.CASES]
# what turns out to be no call only behind a string that has been given out cannot be taken back
BROKEN_LATE = ("M3-in-string", "M9", "M39", "E-prose-cut")
ATOMIC_OR_NOT = [case for case in CASES if not case.id.startswith(BROKEN_LATE)]
BY_ID = {case.id: case for case in CASES}


def _case(name: str) -> Case:
    return BY_ID[name]


POSITIVE = [case for case in CASES if case.calls]
CALLING = st.sampled_from([case.id for case in POSITIVE]).map(_case)
STREAMING = st.sampled_from([case.id for case in ATOMIC_OR_NOT]).map(_case)


def by_bytes(text: str, count: int) -> Iterator[str]:
    """The text as it comes out of a decoder that gets so many bytes at a time."""
    data = text.encode("utf-8", "surrogatepass")
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    yield from (decoder.decode(data[start : start + count]) for start in range(0, len(data), count))
    yield decoder.decode(b"", final=True)


def check(case: Case, result: Result) -> None:
    assert result.parsed() == case.calls
    assert (result.content, result.reasoning) == (case.content, case.reasoning)
    assert (result.dialects[0] if result.dialects else None) == case.dialect
    assert case.ids is None or result.ids == case.ids
    assert result.raw["content"] + result.raw["reasoning"] == _split_like(case, result)
    assert all(result.complete)


def _split_like(case: Case, result: Result) -> str:
    """What was fed, in the order in which the channels are joined above."""
    if case.reasoning_in or not result.raw["reasoning"]:
        return case.text + case.reasoning_in
    whole = case.text
    assert sorted(whole) == sorted(result.raw["content"] + result.raw["reasoning"]), "not a character more or less"
    return result.raw["content"] + result.raw["reasoning"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_whole_and_in_small_pieces(case: Case) -> None:
    check(case, recover(case))
    for count in (1, 2, 3, 7):
        check(case, recover(case, by_bytes(case.text, count)))


@pytest.mark.parametrize("case", ATOMIC_OR_NOT, ids=lambda case: case.id)
def test_given_out_in_pieces_it_says_the_same(case: Case) -> None:
    check(case, recover(case, case.text, pieces_after=0))
    check(case, recover(case, pieces_after=0))


@settings(max_examples=600, deadline=None)
@given(STREAMING, st.lists(st.integers(0, 400), max_size=8), st.sampled_from([None, 0, 3]))
def test_in_random_pieces(case: Case, borders: list[int], after: int | None) -> None:
    cuts = sorted({border for border in borders if border < len(case.text)} | {0, len(case.text)})
    pieces = [case.text[start:stop] for start, stop in pairwise(cuts)]
    check(case, recover(case, pieces, pieces_after=after))


@settings(max_examples=800, deadline=None)
@given(CALLING, st.data())
def test_cut_anywhere_no_call_has_other_arguments(case: Case, data: st.DataObject) -> None:
    """A turn that ran out of tokens: what is called is what would have been called, or it stays text."""
    upto = data.draw(st.integers(0, len(case.text)))
    cut = Case(case.id, case.text[:upto], tools=case.tools, finish="length", choice=case.choice, options=case.options)
    full = recover(case).calls
    found = recover(cut)
    assert found.calls == full[: len(found.calls)]
    assert all(found.complete)


@settings(max_examples=600, deadline=None)
@given(CALLING, st.data())
def test_what_was_given_out_in_pieces_is_a_beginning_of_the_whole(case: Case, data: st.DataObject) -> None:
    upto = data.draw(st.integers(0, len(case.text)))
    reason = data.draw(st.sampled_from(["length", "stop"]))
    cut = Case(case.id, case.text[:upto], tools=case.tools, finish=reason, choice=case.choice, options=case.options)
    full = [arguments for _, arguments in recover(case, pieces_after=0).calls]
    found = recover(cut, pieces_after=0)
    for complete, (_, arguments), whole in zip(found.complete, found.calls, full, strict=False):
        assert complete or whole.startswith(arguments) or reason == "stop"
        assert not complete or isinstance(json.loads(arguments), dict)


@settings(max_examples=300, deadline=None)
@given(CALLING, st.text(max_size=20))
def test_without_tools_nothing_happens(case: Case, more: str) -> None:
    plain = Case("x", case.text + more, tools=None)
    assert recover(plain).content == case.text + more
    assert recover(plain).calls == ()


@pytest.mark.parametrize("form", closers.FORMS, ids=lambda form: form.dialect)
def test_cut_at_every_character_a_call_is_whole_or_text(form: closers.Form) -> None:
    text = form.call("print(1)")
    whole = recover(Case("x", text)).calls
    assert len(whole) == 1
    for upto in range(len(text)):
        found = recover(Case("x", text[:upto], finish="length"))
        assert found.calls in {(), whole}
        assert found.calls or found.content == text[:upto]


REPAIRED = {
    *("D28-shell", "D28-shell-equals", "D28-shell-place", "D28-shell-flag", "D28-shell-assigned", "D38-quotes"),
    *("I-two", "I-closed", "I-three", "I-then", "M2-xml", "M2-glm", "M3", "M3-two", "M3-bracket", "M3-array", "M3-end"),
    *("M4-doubled", "M4-doubled-arguments", "M5", "M5-words", "M5-escape", "M5-words-in-json", "M6", "M6-array", "M7"),
    *("M8", "M8-escapes", "M8-unicode", "M16", "M16-parameter", "M16-partial", "M16-wrapper", "M16-glm"),
    *(
        "M16-glm-value",
        "M16-invoke",
        "M16-m3",
        "M16-m3-value",
        "M17",
        "M17-end",
        "M17-next",
        "M18",
        "M22",
        "M22-value-in-tag",
        "M22-twice-equal",
    ),
    *("M25", "M25-no-first-key", "M25-line-key", "M25-opener-as-key"),
    *("M27", "M27-single", "M27-space", "M27-parentheses", "M27-no-brace"),
}


@pytest.mark.parametrize("case", POSITIVE, ids=lambda case: case.id)
def test_what_had_to_be_repaired_is_counted_as_such(case: Case) -> None:
    asked = Request(case.tools, case.choice, Options(**{"pieces_after": None, **case.options}))
    answer = read_answer(asked, [case.text], [case.reasoning_in], case.finish)
    assert any(call.repaired for call in answer.calls) == (case.id in REPAIRED)


@pytest.mark.parametrize("closer", sorted(REGISTRY.closers))
def test_a_closing_tag_that_closes_nothing_stays(closer: str) -> None:
    """At the end of a text about something else; behind a call it disappears."""
    for text in (f"That is how it ends: {closer}", f"Done.\n{closer}\n", closer):
        check(Case("x", text, content=text), recover(Case("x", text), by_bytes(text, 1)))
    text = f'<tool_call>{{"name": "ping"}}</tool_call>\nDone.\n{closer}\n'
    assert recover(Case("x", text), by_bytes(text, 1)).content == "\nDone.\n"


@pytest.mark.parametrize("tail", [" and more", "; and more", ", and more", "\nand (more)", "\n\nand [more]"])
@pytest.mark.parametrize("case", [case for case in dialects.CASES if not case.reasoning_in], ids=lambda case: case.id)
def test_text_behind_a_call_is_kept(case: Case, tail: str) -> None:
    assert recover(Case("x", case.text + tail, options=case.options)).content.endswith(tail)


def test_a_prefix_that_a_model_is_known_by_names_the_dialect() -> None:
    for prefix, dialect in (("steptml:", "step3"), ("other:", "anthropic")):
        parameter = f'<{prefix}parameter name="city">Paris</{prefix}parameter>'
        result = recover(Case("x", f'<{prefix}invoke name="get_weather">{parameter}</{prefix}invoke>'))
        assert (result.parsed(), result.dialects) == ((("get_weather", {"city": "Paris"}),), (dialect,))


@pytest.mark.parametrize(
    ("opener", "quote"), [("<|tool_call>", '<|"|>'), ("<start_function_call>", "<escape>"), ("", "<escape>")]
)
def test_a_gemma_string_ends_where_another_call_begins(opener: str, quote: str) -> None:
    calls = [f"{opener}call:get_weather{{city:{quote}{city}{quote}}}" for city in ("Paris", "Rome")]
    expected = tuple(("get_weather", {"city": city}) for city in ("Paris", "Rome"))
    for between in ("", " ", "\n"):
        result = recover(Case("x", between.join(calls)))
        assert (result.parsed(), result.content) == (expected, "")


LONG = "x" * 200


@pytest.mark.parametrize(
    "text",
    [
        f'<tool_call>{{"name": "write_file", "arguments": {{"path": "a", "content": "{LONG}"}}}}</tool_call>',
        f"<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n{LONG}\n</parameter>\n</function>",
        f"<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n<arg_key>content</arg_key>\n"
        f"<arg_value>{LONG}</arg_value>\n</tool_call>",
    ],
    ids=["JSON", "parameters", "pairs"],
)
def test_a_long_argument_behind_a_short_one_is_given_out_in_pieces_of_one_object(text: str) -> None:
    result = recover(Case("x", text), by_bytes(text, 7), pieces_after=20)
    assert result.parsed() == (("write_file", {"path": "a", "content": LONG}),)


def test_what_is_longer_than_may_be_held_is_given_out_as_text_before_its_end() -> None:
    recoverer = Recoverer(TOOLS, options=Options(max_hold=64, pieces_after=None))
    begun = f'<tool_call>{{"name": "write_file", "arguments": {{"path": "a", "content": "{LONG}'
    told = [event for piece in by_bytes(begun, 9) for event in recoverer.feed("content", piece)]
    assert len(folded(told).content) > len(begun) - 64


@pytest.mark.parametrize(("allowed", "calls"), [({"hermes"}, 1), ({"glm-4.5"}, 0), (None, 1), (set[str](), 0)])
def test_only_the_dialects_that_are_asked_for_count(allowed: set[str] | None, calls: int) -> None:
    text = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'
    result = recover(Case("x", text), dialects=None if allowed is None else frozenset(allowed))
    assert len(result.calls) == calls
    assert result.content == ("" if calls else text)


def test_thoughts_that_are_not_split_off_stay_content() -> None:
    text = "<think>Hm. <tool_call>x</think>\n\nHello."
    result = recover(Case("x", text), split_think=False)
    assert (result.content, result.reasoning, result.raw) == (text, "", {"content": text, "reasoning": ""})


def test_every_dialect_and_every_malformation_has_its_row() -> None:
    rows = {re.match(r"[A-Z]+\d*", case.id)[0] for case in CASES}  # type: ignore[index]  # every id matches
    missing = {f"D{number}" for number in range(1, 47)} | {f"M{number}" for number in range(1, 44)}
    assert missing <= rows
    assert len(negatives.CASES) > 46
    assert len(BY_ID) == len(CASES), "an id twice"


def test_every_dialect_id_is_reached() -> None:
    reached = {dialect for case in POSITIVE for dialect in recover(case).dialects}
    silent = REGISTRY.dialects.keys() - reached
    assert not silent, f"give these dialects cases in tests/core/toolcalls/corpus/dialects.py: {sorted(silent)}"
    assert reached <= REGISTRY.dialects.keys()


def test_arguments_are_always_openai_s_json() -> None:
    for case in POSITIVE:
        for _, arguments in recover(case).calls:
            assert isinstance(json.loads(arguments), dict)
            arguments.encode("utf-8")
