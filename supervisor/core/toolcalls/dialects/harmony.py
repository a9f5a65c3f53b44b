"""OpenAI's harmony: a message to a function, on the channel `commentary` or `analysis`, with JSON as its text."""

from __future__ import annotations

import re
from typing import Final

from supervisor.core.toolcalls.block import Block, CallWriter
from supervisor.core.toolcalls.dialect import Dialect
from supervisor.core.toolcalls.objects import read_bare_arguments
from supervisor.core.toolcalls.source import Literals, Wait, one_of, run_of
from supervisor.core.toolcalls.tools import MAX_NAME

_ID: Final = "harmony"
_WORDS: Final = re.compile(r"[\w .:=/\-]*")
_TOKENS: Final = Literals(["<|channel|>", "<|constrain|>", "<|message|>"])
_RECIPIENT: Final = re.compile(r"\bto=(?:functions?[./])?([\w.:\-]+)")
_MAX_TOKENS: Final = 4


def read_message(block: Block, opener: str) -> Wait[bool]:
    """Read the message; the source stands behind the beginning of its header."""
    src = block.src
    recipient = ""
    for _ in range(_MAX_TOKENS):
        words = yield from run_of(src, _WORDS, MAX_NAME)
        found = _RECIPIENT.search(words)
        if found:
            recipient = recipient or found[1]
        token = yield from one_of(src, _TOKENS)
        if not token or len(words) > MAX_NAME:
            return False
        src.pos += len(token)
        if token == "<|message|>":
            break
    else:
        return False
    if not recipient:
        return False
    tool = yield from block.resolve(recipient)
    return (yield from read_bare_arguments(block, CallWriter(block, tool, _ID)))


DIALECTS: Final = (
    Dialect(
        id=_ID,
        models="gpt-oss",
        openers=dict.fromkeys(
            ("<|channel|>commentary", "<|channel|>analysis", "<|start|>assistant"),
            read_message,
        ),
        ends=("<|call|>", "<|end|>", "<|return|>"),
        think={"<|channel|>analysis<|message|>": "<|end|>"},
        answer_headers=("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
        turn_tokens=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"),
        marks=(("<|channel|>",),),
    ),
)
