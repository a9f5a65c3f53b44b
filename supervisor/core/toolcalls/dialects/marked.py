"""A marker and JSON: an object, an array, or objects in a row. Some of the markers precede Python or tags as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.dialects import python
from supervisor.core.toolcalls.dialects.xml import read_functions
from supervisor.core.toolcalls.objects import read_calls
from supervisor.core.toolcalls.source import Literals, Wait, one_of, peek, skip_space, take


@dataclass(frozen=True, slots=True)
class Marked:
    """The reader of JSON or a Python list behind a marker.

    Attributes:
        keyed: the tool's name is the key of its arguments.
        fillers: what may stand between.
    """

    dialect: str
    keyed: bool = False
    fillers: tuple[str, ...] = ()

    def __call__(self, block: Block, opener: str) -> Wait[bool]:
        yield from skip_space(block.src)
        for filler in self.fillers:
            yield from take(block.src, filler)
        return (yield from read_json_or_python(block, self.dialect, keyed=self.keyed))


def read_json_or_python(block: Block, dialect: str, *, keyed: bool = False) -> Wait[bool]:
    """Read JSON calls, or a list of Python calls."""
    src = block.src
    yield from skip_space(src)
    start = src.pos
    bracket = yield from take(src, "[")
    if bracket:
        yield from skip_space(src)
        char = yield from peek(src)
        src.seek(start)
        if char.isalpha() or char == "_":
            return (yield from python.read_list(block, dialect))
    return (yield from read_calls(block, dialect, keyed=keyed))


def read_functools(block: Block, opener: str) -> Wait[bool]:
    """Read `functools[…]`; the bracket belongs to the marker."""
    block.src.seek(block.src.pos - 1)
    return (yield from read_calls(block, "phi-4-mini"))


def read_tool_calls(block: Block, opener: str) -> Wait[bool]:
    """Read what follows `<tool_calls>`: an array, or one object per line."""
    yield from skip_space(block.src)
    char = yield from peek(block.src)
    if char == "<":
        return (yield from read_functions(block, "anthropic"))
    return (yield from read_calls(block, "hunyuan-a13b" if char == "[" else "minimax-m1"))


def read_function_calls(block: Block, opener: str) -> Wait[bool]:
    """Read what follows `<function_calls>`: tags, or lines of Python."""
    yield from skip_space(block.src)
    char = yield from peek(block.src)
    if char == "<":
        return (yield from read_functions(block, "anthropic"))
    if char in {"{", "["}:
        return (yield from read_json_or_python(block, "olmo-3"))
    return (yield from python.read_lines(block, "olmo-3", _closes))


_FUNCTION_CALLS_END: Final = Literals(["</function_calls>"])


def _closes(block: Block) -> Wait[bool]:
    closer = yield from one_of(block.src, _FUNCTION_CALLS_END)
    return bool(closer)


def read_message_sep(block: Block, opener: str) -> Wait[bool]:
    """Read what follows `<|message_sep|>`: the role of a call, and the call."""
    yield from skip_space(block.src)
    role = yield from take(block.src, "function call<|role_sep|>")
    return role and (yield from read_calls(block, "gigachat-3"))


def read_role_sep(block: Block, opener: str) -> Wait[bool]:
    """Read the same where the separator has been cut off."""
    return (yield from read_calls(block, "gigachat-3"))


_PLUGINS: Final = ("<|plugin|>", "<|interpreter|>")
DIALECTS: Final = (
    Dialect(
        id="qwen2.5-coder",
        models="Qwen2.5-Coder in practice: JSON in the open or in makeshift tags",
        openers=dict.fromkeys(("<tools>", "<function>", "<function-call>"), Marked("qwen2.5-coder")),
        closers=("</tools>", "</function>", "</function-call>"),
    ),
    Dialect(
        id="granite-3",
        models="Granite 3.x",
        openers=dict.fromkeys(("<function_call>", "<|tool_call|>"), Marked("granite-3")),
        closers=("</function_call>", "<|/tool_call|>"),
        ends=("<|end_of_text|>",),
        marks=(("<|tool_call|>",),),
    ),
    Dialect(
        id="phi-4-mini",
        models="Phi-4 mini, FireFunction",
        line_openers={"functools[": read_functools},
        closers=("<|/tool_calls|>",),
        ends=("<|end|>",),
        marks=(("functools[",),),
    ),
    Dialect(
        id="nemotron-nano-v2",
        models="Nemotron Nano v2",
        openers={"<TOOLCALL>": Marked("nemotron-nano-v2")},
        closers=("</TOOLCALL>",),
        marks=(("<TOOLCALL>",),),
    ),
    Dialect(
        id="command-r7b",
        models="Command R7B, Command A, North",
        openers={"<|START_ACTION|>": Marked("command-r7b")},
        closers=("<|END_ACTION|>",),
        think={"<|START_THINKING|>": "<|END_THINKING|>"},
        marks=(("<|START_ACTION|>",),),
    ),
    Dialect(
        id="apertus",
        models="Apertus",
        openers={"<|tools_prefix|>": Marked("apertus", keyed=True)},
        closers=("<|tools_suffix|>",),
        marks=(("<|tools_prefix|>",),),
    ),
    Dialect(
        id="lfm2",
        models="LFM2, LFM2.5",
        openers={"<|tool_call_start|>": Marked("lfm2")},
        closers=("<|tool_call_end|>",),
        marks=(("<|tool_call_start|>",), ("List of tools: ",)),
        precedence=1,
    ),
    Dialect(
        id="llama-4",
        models="Llama 4, xLAM, Granite 3.3: a Python list",
        openers={"<|python_start|>": Marked("llama-4")},
        closers=("<|python_end|>",),
        ends=("<|eom|>", "<|eot|>"),
    ),
    Dialect(
        id="internlm2",
        models="InternLM2, Intern-S1",
        openers={"<|action_start|>": Marked("internlm2", fillers=_PLUGINS)},
        closers=("<|action_end|>",),
        tokens=_PLUGINS,
    ),
    Dialect(
        id="gigachat-3",
        models="GigaChat 3",
        openers={"<|function_call|>": Marked("gigachat-3"), "<|message_sep|>": read_message_sep},
        line_openers={"function call<|role_sep|>": read_role_sep},
        tokens=("<|role_sep|>",),
        marks=(("<|message_sep|>", "<|role_sep|>"), ("function_call", "<function_usage>")),
    ),
    Dialect(
        id="inkling",
        models="Inkling",
        openers={"<|content_invoke_tool_json|>": Marked("inkling")},
        ends=("<|end_message|>",),
    ),
    Dialect(
        id="minimax-m1",
        models="MiniMax M1, Jamba",
        openers={"<tool_calls>": read_tool_calls},
        closers=("</tool_calls>",),
        ends=("<end_of_sentence>",),
        marks=(("<tool_calls>",),),
        precedence=1,
    ),
    Dialect(id="hunyuan-a13b", models="Hunyuan A13B, Apriel", marks=(("<tool_calls>[",),), precedence=1),
    Dialect(
        id="olmo-3",
        models="OLMo 3",
        openers={"<function_calls>": read_function_calls},
        closers=("</function_calls>",),
    ),
    Dialect(id="xlam-2", models="xLAM 2, Sarashina: a JSON array"),
    Dialect(id="openai", models="OpenAI's own objects, llama.cpp's generic format"),
)
