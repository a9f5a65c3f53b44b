"""State what a scripted model says: plain data, no bytes, no files.

A scripted model is a real GGUF for the real engine whose next token depends on the last one only. A `Script`
states its texts and when each is said; `pieces` cuts them into tokens, `template` writes the chat template that
picks one of them, `maker` writes the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

TemplateKind = Literal["chatml", "plain"]
"""`chatml`: markers from which the engine parses reasoning and tool calls. `plain`: everything stays in `content`."""

CALL_END = "}\n</tool_call>"
"""The model's text after a call that the template has begun."""

_WORD = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Reply:
    """A text and the word in the last message that picks it.

    Attributes:
        word: lower-case letters, digits and inner hyphens; matched as a whole word in any case.
        endless: begin again at the end, until the token limit or the context stops it.
    """

    word: str
    text: str
    endless: bool = False

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.word):
            raise ValueError(f"not a word: {self.word!r}; use lower-case letters, digits, inner hyphens")
        if self.endless and not self.text:
            raise ValueError(f"the endless reply {self.word!r} needs a text")


@dataclass(frozen=True)
class Script:
    """The texts of one model. The last message decides, in this order:

    1. it is a tool's result: `after_tool` (where given);
    2. a word of `replies` occurs in it: that reply, the first in the table;
    3. tools are offered: a call of the first of them (`call_first_tool`), or the text `tools` (where given);
    4. otherwise `default`; plain prompts of `/v1/completions` get it too.
    """

    name: str
    default: str
    replies: tuple[Reply, ...] = ()
    after_tool: str | None = None
    tools: str | None = None
    call_first_tool: bool = False
    endless: bool = False  # the default begins again at its end
    template: TemplateKind = "chatml"
    n_ctx: int = 32768

    def __post_init__(self) -> None:
        words = [reply.word for reply in self.replies]
        repeated = {word for word in words if words.count(word) > 1}
        if repeated:
            raise ValueError(f"words that pick two replies: {', '.join(sorted(repeated))}")
        if self.endless and not self.default:
            raise ValueError("an endless default needs a text")
        if self.call_first_tool and (self.tools is not None or self.template != "chatml"):
            raise ValueError("call_first_tool excludes a text for tools and needs the chatml template")


@dataclass(frozen=True)
class Line:
    """A text with the control token that starts it, which the maker and the template share."""

    start: str
    text: str
    endless: bool = False


def lines(script: Script) -> tuple[Line, ...]:
    """Return every text of `script`, the default first."""
    found = [Line(start_token("default"), script.default, script.endless)]
    if script.after_tool is not None:
        found.append(Line(start_token("after-tool"), script.after_tool))
    if script.tools is not None:
        found.append(Line(start_token("tools"), script.tools))
    if script.call_first_tool:
        found.append(Line(start_token("call-end"), CALL_END))
    found += [Line(start_token(f"word:{reply.word}"), reply.text, reply.endless) for reply in script.replies]
    return tuple(found)


def start_token(name: str) -> str:
    """Return the control token after which the model says the text of that name."""
    return f"<|say:{name}|>"
