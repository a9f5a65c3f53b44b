"""Arguments that hold the tags of their own format: in every dialect whose values stand as plain text between tags.

A closing tag inside of a value counts only where what follows can follow a closing tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.core.toolcalls.corpus import PARIS, PING, STRING, Case, tool

_A = re.compile(r"[>\n]a(?=[\n<\]])")
_M3 = "]<]minimax[>["
_Q = '<|"|>'


@dataclass(frozen=True)
class Form:
    """How a dialect writes a call of `write_file` with a path and a content.

    Attributes:
        outer: what stands around the call.
        head: up to the content.
        ends: the closing tags of the content, and of the call.
    """

    dialect: str
    head: str
    ends: tuple[str, str]
    outer: tuple[str, str] = ("", "")

    def bare(self, content: str) -> str:
        """The call without what stands around it."""
        return f"{self.head}{content}{''.join(self.ends)}"

    def call(self, content: str) -> str:
        """The whole call."""
        return f"{self.outer[0]}{self.bare(content)}{self.outer[1]}"


def _tags(prefix: str = "", line: str = "\n") -> tuple[str, tuple[str, str]]:
    head = f"<function=write_file>\n<parameter=path>{line}a{line}</parameter>\n<parameter=content>{line}"
    return head, (f"{line}</parameter>", "\n</function>")


def _invoke(prefix: str = "") -> tuple[str, tuple[str, str]]:
    head = f'<{prefix}invoke name="write_file">\n<{prefix}parameter name="path">a</{prefix}parameter>\n'
    return f'{head}<{prefix}parameter name="content">', (f"</{prefix}parameter>", f"\n</{prefix}invoke>")


def _pairs(prefix: str = "", suffix: str = "") -> tuple[str, tuple[str, str]]:
    key, value = (f"{prefix}arg_key{suffix}>", f"{prefix}arg_value{suffix}>")
    head = f"<{prefix}tool_call{suffix}>write_file<{key}path</{key}<{value}a</{value}<{key}content</{key}<{value}"
    return head, (f"</{value}", f"</{prefix}tool_call{suffix}>")


_PARAM = '<function name="write_file"><param name="path">a</param><param name="content">'
_K3 = '<|open|>call tool="write_file" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>a'
_K3_END = "<|close|>argument<|sep|>"

FORMS = [
    Form("qwen3-coder", *_tags(), ("<tool_call>\n", "\n</tool_call>")),
    Form("seed-oss", *_tags(line=""), ("<seed:tool_call>\n", "\n</seed:tool_call>")),
    Form("minimax-m2", *_invoke(), ("<minimax:tool_call>\n", "\n</minimax:tool_call>")),
    Form("anthropic", *_invoke(), ("<function_calls>\n", "\n</function_calls>")),
    Form("anthropic", *_invoke("acme:"), ("<acme:function_calls>\n", "\n</acme:function_calls>")),
    Form("deepseek-v3.2", *_invoke("｜DSML｜"), ("<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>")),
    Form("deepseek-v3.2", *_invoke("｜DSML｜ "), ("<｜DSML｜ calls>\n", "\n</｜DSML｜ calls>")),
    Form("step3", *_invoke("steptml:"), ("<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>")),
    Form("qwen3-coder", *_tags()),
    Form("anthropic", *_invoke()),
    Form("minicpm5", _PARAM, ("</param>", "</function>")),
    Form("minicpm5", f"{_PARAM}<![CDATA[", ("]]></param>", "</function>")),
    Form("glm-4.7", *_pairs()),
    Form("longcat", *_pairs("longcat_")),
    Form("hunyuan-hy3", *_pairs(suffix=":x1"), ("<tool_calls:x1>", "</tool_calls:x1>")),
    Form(
        "kimi-k3",
        f'{_K3}{_K3_END}<|open|>argument key="content" type="string"<|sep|>',
        (_K3_END, "<|close|>call<|sep|>"),
        ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    ),
    Form(
        "minimax-m3",
        f'{_M3}<invoke name="write_file">{_M3}<path>a{_M3}</path>{_M3}<content>',
        (f"{_M3}</content>", f"{_M3}</invoke>"),
        (f"{_M3}<tool_call>\n", f"\n{_M3}</tool_call>"),
    ),
    Form("gemma-4", f"call:write_file{{path:{_Q}a{_Q},content:{_Q}", (_Q, "}"), ("<|tool_call>", "<tool_call|>")),
    Form(
        "functiongemma",
        "call:write_file{path:<escape>a<escape>,content:<escape>",
        ("<escape>", "}"),
        ("<start_function_call>", "<end_function_call>"),
    ),
]
NO_NESTING = ("gemma-4", "functiongemma", "minimax-m3")
"""Their opening and closing tokens are the same, or any tag in a value nests: an example inside has no meaning of its
own."""


def _contents(form: Form) -> Iterator[tuple[str, str]]:
    value, call = (one.strip() for one in form.ends)
    yield "value", f"one{value} two"
    if call != form.outer[1].strip() and "tool_call" not in call:
        yield "call", f"print('{value}{call}')\nprint(1)"
        yield "lines", f"one\n{value}\n{call}\ntwo"
        yield "twice", f"one{value}{value} two{value}{call} three{value}{call} four"
    if form.outer[0]:
        yield "outer", f"one{form.outer[1]} two{call}{form.outer[1]} three"
    if form.dialect not in NO_NESTING:
        yield "example", f"Write\n{form.call('x')}\nto call it."
        yield "examples", f"Write {form.call('x')} or {form.call('y')}, it is {form.call('z')}."
        begin = form.head[: form.head.index(_A.search(form.head)[0]) + 1]  # type: ignore[index]  # every form has it
        yield "opener", f"It begins with {begin}, that is all."


def _wrote(content: str) -> tuple[tuple[str, dict[str, str]], ...]:
    return (("write_file", {"path": "a", "content": content}),)


def _cases() -> Iterator[Case]:
    for number, form in enumerate(FORMS):
        for name, content in _contents(form):
            cdata = "CDATA" in form.head and "CDATA" in content
            if not cdata:
                yield Case(f"C{number}-{name}", form.call(content), _wrote(content), dialect=form.dialect)
        again = form.outer[1] == "" and form.dialect not in {"glm-4.7", "longcat"}
        between = "\nAnd then:\n" if again else "\n"
        yield Case(
            f"C{number}-two",
            f"{form.call('x')}{between}{form.call('y')}",
            _wrote("x") + _wrote("y"),
            between if again else "",
            dialect=form.dialect,
        )


_FETCH = tool("fetch", ("query",), query=STRING, url=STRING, limit={"type": "integer"})
_XML = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>"
_FILE = "<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n"


def fetch(id: str, inside: str, arguments: dict[str, object]) -> Case:
    """A call of a tool that has a query, a url and a limit."""
    text = f"<tool_call>\n<function=fetch>\n{inside}</function>\n</tool_call>"
    return Case(id, text, (("fetch", arguments),), dialect="qwen3-coder", tools=[_FETCH])


def kept(id: str, text: str, **more: object) -> Case:
    """A case in which everything stays text."""
    return Case(id, text, (), text, **more)  # type: ignore[arg-type]  # a shorthand


CASES = [
    *_cases(),
    # parameters that begin before the one before was closed
    fetch("I-two", "<parameter=query>a<parameter=url>b", {"query": "a", "url": "b"}),
    fetch("I-closed", "<parameter=query>a<parameter=url>b</parameter>", {"query": "a", "url": "b"}),
    fetch(
        "I-three",
        "<parameter=query>a<parameter=url>b\n<parameter=limit>3</parameter>\n",
        {"query": "a", "url": "b", "limit": 3},
    ),
    fetch("I-unknown", "<parameter=query>a<parameter=page>b</parameter>\n", {"query": "a<parameter=page>b"}),
    fetch(
        "I-mentioned",
        "<parameter=query>what <parameter=url> means</parameter>\n<parameter=url>b</parameter>\n",
        {"query": "what <parameter=url> means", "url": "b"},
    ),
    fetch(
        "I-mentioned-line",
        "<parameter=query>\nwhat is\n<parameter=url>\nin it\n</parameter>\n<parameter=url>\nb\n</parameter>\n",
        {"query": "what is\n<parameter=url>\nin it", "url": "b"},
    ),
    fetch(
        "I-other-type",
        "<parameter=query>what <parameter=limit> means</parameter>\n",
        {"query": "what <parameter=limit> means"},
    ),
    fetch(
        "I-then",
        "<parameter=query>a<parameter=url>b</parameter>\n<parameter=limit>3</parameter>\n",
        {"query": "a", "url": "b", "limit": 3},
    ),
    # no closing tag of the value's own
    Case("E-prose", f"{_XML}\nThat is it.", (PARIS,), "\nThat is it.", dialect="qwen3-coder"),
    kept("E-prose-cut", f"{_XML}\nThat is", finish="length"),
    Case("E-end-token", f"{_XML}<|im_end|>", (PARIS,), dialect="qwen3-coder"),
    Case(
        "E-prose-other",
        f'{_XML}\nThen:\n<tool_call>{{"name": "ping"}}</tool_call>',
        (PARIS, PING),
        "\nThen:\n",
        dialect="qwen3-coder",
    ),
    Case(
        "E-prose-orphan",
        f"{_XML}\nThat is it.\n</tool_call>",
        (PARIS,),
        "\nThat is it.\n",
        dialect="qwen3-coder",
    ),
    Case(
        "E-code-opener",
        f"{_FILE}a = '</parameter></function>'\nb = '<tool_call>'\n</parameter>\n</function>",
        (("write_file", {"path": "a", "content": "a = '</parameter></function>'\nb = '<tool_call>'"}),),
        dialect="qwen3-coder",
    ),
    # the outer closing tag ends the call, whatever follows
    Case(
        "E-outer",
        f"<tool_call>\n{_FILE}x\n</parameter>\n</function>\n</tool_call> y\n</parameter>\n</function>\n</tool_call>",
        (("write_file", {"path": "a", "content": "x"}),),
        " y\n",
        dialect="qwen3-coder",
    ),
]
