"""One record makes a dialect: whoever looks for dialects finds a new one by it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest

from supervisor.cli.verbs.toolcalls import Asked, parsed
from supervisor.core.spec.template import read_template
from supervisor.core.toolcalls import REGISTRY
from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.objects import read_bare_arguments
from supervisor.core.toolcalls.registry import Registry
from supervisor.core.toolcalls.source import Wait, take, until
from supervisor.core.toolcalls.tools import MAX_NAME
from supervisor.core.toolcalls.whole import Answer, Request, read_answer
from tests.core.toolcalls.corpus import TOOLS
from tests.support.dialect_table import table

_BRACE: Final = re.compile(r"[{\n]")


def read_scratch(block: Block, opener: str) -> Wait[bool]:
    """`%%call NAME {…}`, or a line `run: NAME {…}`."""
    yield from take(block.src, " ")
    name = yield from until(block.src, _BRACE, MAX_NAME)
    if not name:
        return False
    tool = yield from block.resolve(name)
    return (yield from read_bare_arguments(block, CallWriter(block, tool, "scratch")))


SCRATCH: Final = Dialect(
    id="scratch",
    models="Scratch 1",
    openers={"%%call": read_scratch},
    line_openers={"run:": read_scratch},
    closers=("%%end",),
    ends=("%%over",),
    think={"%%think": "%%thought"},
    answer_headers=("%%answer",),
    tokens=("%%inner",),
    turn_tokens=("%%turn",),
    marks=(("%%call", "%%end"),),
    swallowed=(("%%call",),),
)
SCRATCHED: Final = Registry([*REGISTRY.dialects.values(), SCRATCH])
PARIS: Final = '{"city": "Paris"}'


def read(text: str, size: int, registry: Registry = SCRATCHED) -> Answer:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    return read_answer(Request(TOOLS, registry=registry), pieces, (), "stop")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("opener", ["%%call", "\nrun:"])
def test_its_calls_are_read_however_the_text_is_cut(opener: str, size: int) -> None:
    text = f"%%think Hm. %%thought%%answerSure.{opener} get_weather {PARIS}%%end{opener} get_time {{}}%%end%%over"
    answer = read(text, size)
    assert [(call.name, call.arguments, call.dialect) for call in answer.calls] == [
        ("get_weather", PARIS, "scratch"),
        ("get_time", "{}", "scratch"),
    ]
    assert (answer.content, answer.reasoning) == ("Sure." + opener.removesuffix(opener.strip()), "Hm.")
    assert "%%end" in "".join(answer.dropped)


@pytest.mark.parametrize("size", [1, 1000])
def test_its_text_is_text_to_those_who_do_not_know_it(size: int) -> None:
    text = f"%%call get_weather {PARIS}%%end"
    assert read(text, size, REGISTRY).content == text
    assert read(f"`{text}`", size).content == f"`{text}`", "code is never a call"
    assert read("It ends with %%end", size).content == "It ends with %%end", "nothing was opened"


def test_its_closers_close_in_other_dialects_too() -> None:
    text = '<tool_call>{"name": "ping"}</tool_call>%%end%%over'
    assert read(text, 3).content == ""
    assert read(text, 3, REGISTRY).content == "%%end%%over"


def test_a_template_with_its_marks_asks_for_it() -> None:
    template = "{% if tools %}{{ tools }}{% endif %}%%call {{ name }}%%end"
    assert read_template(template, SCRATCHED).tool_dialect == "scratch"
    assert read_template(template).tool_dialect is None
    assert read_template("%%think{{ thought }}", SCRATCHED).thinking == "always"
    assert (SCRATCHED.is_swallowed(template), REGISTRY.is_swallowed(template)) == (True, False)


def test_where_a_template_has_marks_of_several_the_lowest_precedence_counts_then_the_most_marks() -> None:
    template = "<tool_call> %%call %%end"
    for precedence, asked in ((0, "scratch"), (2, "scratch"), (3, "hermes")):
        registry = Registry([*REGISTRY.dialects.values(), replace(SCRATCH, precedence=precedence)])
        assert registry.asked_by(template) == asked


def test_its_markup_is_shown_by_the_engine() -> None:
    shown = set(SCRATCHED.tokens) - set(REGISTRY.tokens)
    assert shown == {"%%call", "%%end", "%%think", "%%thought", "%%inner"}, "no end tokens, no plain words"
    assert SCRATCHED.turn_tokens("A prompt with %%call and %%end") == ("%%turn",)
    assert SCRATCHED.turn_tokens("A prompt") == ()


@pytest.mark.parametrize(
    ("dialect", "texts"),
    [
        ("gemma-4", {'<|"|>', "<|channel>"}),
        ("functiongemma", {"<escape>"}),
        ("kimi-k2", {"<|tool_call_argument_begin|>"}),
        ("kimi-k3", {"<|sep|>", "<|open|>", "<|close|>"}),
        ("internlm2", {"<|plugin|>", "<|interpreter|>"}),
        ("gigachat-3", {"<|role_sep|>"}),
        ("minimax-m3", {"]<]minimax[>["}),
        ("mistral-v7", {"[TOOL_CONTENT]"}),
        ("mistral-v11", {"[CALL_ID]", "[ARGS]"}),
        ("mistral-v13", {"[ARGS]"}),
        ("deepseek-v3", {"<｜tool▁sep｜>"}),
        ("deepseek-v3.2", {"｜DSML｜"}),
        ("step3", {"<｜tool_sep｜>"}),
        ("solar-open", {"<|tool_call:name|>", "<|tool_call:args|>"}),
    ],
)
def test_the_engine_is_asked_to_show_what_divides_the_parts_of_a_call(dialect: str, texts: set[str]) -> None:
    assert texts <= {*REGISTRY.dialects[dialect].tokens} <= {*REGISTRY.tokens}


def test_channels_of_harmony_are_shown_where_the_prompt_has_them() -> None:
    shown = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"}
    assert {*REGISTRY.turn_tokens("<|channel|>analysis")} == shown
    assert not shown & {*REGISTRY.tokens, *REGISTRY.turn_tokens("<|im_start|>")}


@pytest.mark.parametrize("tag", ["arg_key", "arg_value", "longcat_arg_key", "longcat_arg_value", "tool_call", "think"])
def test_the_engine_is_asked_to_show_both_tags_of_what_stands_in_tags(tag: str) -> None:
    """Each may be one token, which an engine that is not asked for it leaves out."""
    assert {f"<{tag}>", f"</{tag}>"} <= {*REGISTRY.tokens}


def test_the_page_and_the_command_show_it() -> None:
    assert "| `scratch` | Scratch 1 |\n" in table(SCRATCHED.dialects)
    asked: Asked = {"text": f"%%call get_weather {PARIS}%%end", "tools": TOOLS}
    for chunk in (None, 1, 5):
        found = parsed(asked, chunk, SCRATCHED)
        assert found["dialect"] == "scratch"
        assert found["tool_calls"] == [{"name": "get_weather", "arguments": PARIS}]
        assert parsed(asked, chunk)["dialect"] is None


@pytest.mark.parametrize(
    "other",
    [
        replace(SCRATCH, models="somebody else", openers={}, line_openers={}),
        Dialect(id="other", models="", openers={"%%call": lambda block, opener: read_scratch(block, opener)}),
        Dialect(id="other", models="", think={"%%think": "</think>"}),
    ],
    ids=["id", "opener", "think tag"],
)
def test_two_dialects_cannot_claim_the_same(other: Dialect) -> None:
    with pytest.raises(ValueError, match="Two dialects claim"):
        Registry([SCRATCH, other])
