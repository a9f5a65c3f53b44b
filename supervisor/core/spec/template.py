"""Read the capabilities of a chat template from its text, without ever running it.

A template is a Jinja program from a stranger's file. Its tags are cut into names and string literals; what it can do
shows in the variables that it expects from outside and in the markers that it writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from supervisor.core.toolcalls.dialects import REGISTRY
from supervisor.core.toolcalls.registry import Registry

_MAX_TEXT = 1 << 18  # characters; the longest template known has 20,000

_SWITCHES = (
    *("enable_thinking", "thinking", "reasoning_effort"),
    *("reasoning_strength", "thinking_mode", "thinking_budget"),
)
"""Variables that switch reasoning on or set its length, the plainest first."""

_KEEPERS = (
    *("preserve_thinking", "clear_thinking", "truncate_history_thinking", "drop_thinking"),
    *("keep_past_thinking", "preserved_thinking"),
)
"""Variables that decide whether the reasoning of earlier turns stays."""

_TOOL_LISTS = ("tools", "available_tools")
"""Variables that tell a template of tools. Some use another name for the list; llama-server fills `tools` alone."""

_REASONING_MARKS = ("<|think|>", "reasoning steps", "[BEGIN FINAL RESPONSE]")
"""Marks of reasoning, apart from the think tags of the dialects."""

_STRING = re.compile(r"'((?:\\.|[^'\\])*)(?:'|\\?\Z)|\"((?:\\.|[^\"\\])*)(?:\"|\\?\Z)", re.DOTALL)
_NAME = re.compile(r"(?<![\w.\"])([A-Za-z_]\w*)\b(?!\s*=(?!=))")
_ASSIGNED = re.compile(r"\bset\s+([A-Za-z_]\w*)")
_SPACE = re.compile(r"\s+")
# Code is searched with single spaces: there is one way alone to read a run of them
_EACH_CALL = re.compile(r"\bfor [\w, ]{1,40} in \(?[\w.\[\]\"]{0,60}tool_?calls\b")
_FIRST_CALL = re.compile(r"\btool_calls\b\"?\]?\s*(?:\[\s*0\s*\]|\|\s*first\b)")
_ONE_CALL_ONLY = re.compile(r"single tool[- ]call|one tool[- ]call", re.IGNORECASE)
_NO_SYSTEM = re.compile(r"system (?:role|message|prompt)s?\W+(?:is |are )?not support", re.IGNORECASE)
_ROLE_WRITTEN = re.compile(r"\b\w+(?:\.role\b|\[\"role\"\])(?!\s*(?:==|!=|in\b|not\b))")
_CLOSERS = {"{%": "%}", "{{": "}}", "{#": "#}"}


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """The capabilities of a chat template.

    Attributes:
        tools: it tells the model which tools there are.
        tool_dialect: how calls are written, the id of a dialect (docs/toolcalls.md); None where unknown or without.
        parallel_tools: several calls in one turn; None where the template does not tell.
        thinking: the variable that switches reasoning (`enable_thinking`, `reasoning_effort`, `thinking`, or one that
            few templates know); "always" where none does; None without reasoning.
        preserve_thinking: a variable decides whether the reasoning of earlier turns stays.
        system_role: it takes a system message.
    """

    tools: bool
    tool_dialect: str | None
    parallel_tools: bool | None
    thinking: str | None
    preserve_thinking: bool
    system_role: bool


@dataclass(frozen=True, slots=True)
class _Program:
    """A template cut up.

    Attributes:
        code: all tags, `;` between them, string literals as `"role"` where they are plain words, else `""`.
        written: the expressions `{{ … }}` only, in the same form.
        text: everything that may end up in the output: plain text and string literals.
        read, assigned: names that the code reads and sets, each with the place where it does so first.
    """

    code: str
    written: str
    text: str
    read: Mapping[str, int]
    assigned: Mapping[str, int]

    def expects(self, name: str) -> bool:
        """Return whether the variable comes from outside: it is read, and not only after it was set."""
        if name not in self.read:
            return False
        if name not in self.assigned or self.read[name] < self.assigned[name]:
            return True
        tested = rf"\b{name}\s+is\s+(?:not\s+)?(?:defined|undefined|none)\b"
        kept = rf"\bset\s+{name}\s*=[^;]{{0,200}}(?<![\w.]){name}\b"
        return re.search(f"{tested}|{kept}", self.code) is not None


def read_template(text: str, registry: Registry = REGISTRY) -> TemplateCapabilities:
    """Return the capabilities of a template. Any text has some; a broken template's are a guess."""
    program = _cut(text[:_MAX_TEXT])
    return TemplateCapabilities(
        tools=any(program.expects(name) for name in _TOOL_LISTS),
        tool_dialect=registry.asked_by(program.text),
        parallel_tools=_parallel(program),
        thinking=_thinking(program, registry),
        preserve_thinking=any(program.expects(name) for name in _KEEPERS),
        system_role=_system_role(program),
    )


def _thinking(program: _Program, registry: Registry) -> str | None:
    switch = next((name for name in _SWITCHES if program.expects(name)), None)
    if switch is not None:
        return switch
    return "always" if any(mark in program.text for mark in (*registry.think, *_REASONING_MARKS)) else None


def _parallel(program: _Program) -> bool | None:
    if _ONE_CALL_ONLY.search(program.text):
        return False
    if _EACH_CALL.search(program.code):
        return True
    return False if _FIRST_CALL.search(program.code) else None


def _system_role(program: _Program) -> bool:
    if _NO_SYSTEM.search(program.text):
        return False
    return '"system"' in program.code or _ROLE_WRITTEN.search(program.written) is not None


def _cut(text: str) -> _Program:
    code: list[str] = []
    written: list[str] = []
    output: list[str] = []
    for kind, part in _parts(text):
        if not kind:
            output.append(part)
            continue
        code.append(_STRING.sub(_kept_word, part))
        output.extend(_unescaped(found[1] or found[2] or "") for found in _STRING.finditer(part))
        if kind == "{{":
            written.append(code[-1])
    joined = _SPACE.sub(" ", " ; ".join(code))
    return _Program(
        code=joined,
        written=" ; ".join(written),
        text="\n".join(output),
        read=_first_places(_NAME, joined),
        assigned=_first_places(_ASSIGNED, joined),
    )


def _first_places(pattern: re.Pattern[str], code: str) -> Mapping[str, int]:
    places: dict[str, int] = {}
    for found in pattern.finditer(code):
        places.setdefault(found[1], found.start(1))
    return places


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield plain text (kind "") and the insides of tags (kind `{%` or `{{`), in order; comments are left out."""
    at = 0
    while True:
        opener = min((found for found in (text.find(kind, at) for kind in _CLOSERS) if found >= 0), default=len(text))
        yield "", text[at:opener]
        kind = text[opener : opener + 2]
        end = text.find(_CLOSERS[kind], opener + 2) if kind else -1
        if end < 0:
            return
        if kind != "{#":
            yield kind, text[opener + 2 : end].strip("-+")
        at = end + 2


def _kept_word(found: re.Match[str]) -> str:
    word = found[1] or found[2] or ""
    return f'"{word}"' if word.isidentifier() else '""'


def _unescaped(literal: str) -> str:
    return literal.replace('\\"', '"').replace("\\'", "'").replace("\\n", "\n")
