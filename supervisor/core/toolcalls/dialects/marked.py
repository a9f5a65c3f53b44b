"""A marker, then JSON: an object, an array, objects in a row. Some of the markers go before Python or tags as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.toolcalls.block import Block
from supervisor.core.toolcalls.dialects import python
from supervisor.core.toolcalls.dialects.xml import read_functions
from supervisor.core.toolcalls.objects import read_calls
from supervisor.core.toolcalls.source import Literals, Wait, one_of, peek, skip_space, take

_DIALECTS: Final[Mapping[str, str]] = {
    "<tools>": "qwen2.5-coder",
    "<function>": "qwen2.5-coder",
    "<function-call>": "qwen2.5-coder",
    "<function_call>": "granite-3",
    "<|tool_call|>": "granite-3",
    "functools": "phi-4-mini",
    "<TOOLCALL>": "nemotron-nano-v2",
    "<|START_ACTION|>": "command-r7b",
    "<|tools_prefix|>": "apertus",
    "<|tool_call_start|>": "lfm2",
    "<|python_start|>": "llama-4",
    "<|action_start|>": "internlm2",
    "<|function_call|>": "gigachat-3",
    "<|content_invoke_tool_json|>": "inkling",
}
_PLUGINS: Final = ("<|plugin|>", "<|interpreter|>")


def read_marked(block: Block, opener: str) -> Wait[bool]:
    """JSON or a Python list behind its marker."""
    src = block.src
    dialect = _DIALECTS[opener]
    yield from skip_space(src)
    for plugin in _PLUGINS if opener == "<|action_start|>" else ():
        yield from take(src, plugin)
    return (yield from read_json_or_python(block, dialect, keyed=dialect == "apertus"))


def read_json_or_python(block: Block, dialect: str, *, keyed: bool = False) -> Wait[bool]:
    """JSON calls, or a list of Python calls."""
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
    """`functools[…]`; the bracket belongs to the marker."""
    block.src.seek(block.src.pos - 1)
    return (yield from read_calls(block, _DIALECTS[opener.removesuffix("[")]))


def read_tool_calls(block: Block, opener: str) -> Wait[bool]:
    """`<tool_calls>`: an array, or an object a line."""
    yield from skip_space(block.src)
    char = yield from peek(block.src)
    if char == "<":
        return (yield from read_functions(block, "anthropic"))
    return (yield from read_calls(block, "hunyuan-a13b" if char == "[" else "minimax-m1"))


def read_function_calls(block: Block, opener: str) -> Wait[bool]:
    """`<function_calls>`: tags, or lines of Python."""
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
    """`<|message_sep|>` and the role of a call."""
    yield from skip_space(block.src)
    role = yield from take(block.src, "function call<|role_sep|>")
    return role and (yield from read_calls(block, "gigachat-3"))


def read_role_sep(block: Block, opener: str) -> Wait[bool]:
    """The same where the separator has been cut off."""
    return (yield from read_calls(block, "gigachat-3"))


READERS: Final = {
    **dict.fromkeys(_DIALECTS.keys() - {"functools"}, read_marked),
    "<tool_calls>": read_tool_calls,
    "<function_calls>": read_function_calls,
    "<|message_sep|>": read_message_sep,
}
LINE_READERS: Final = {"functools[": read_functools, "function call<|role_sep|>": read_role_sep}
