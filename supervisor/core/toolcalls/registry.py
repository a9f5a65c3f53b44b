"""The dialects that are looked for, and what follows from their records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeVar

from supervisor.core.toolcalls.block import NamedReader, OpenPattern, Reader
from supervisor.core.toolcalls.dialect import Dialect, Marks
from supervisor.core.toolcalls.source import Literals

T = TypeVar("T")


class Registry:
    """Dialects by id.

    Raises ValueError where two of them contradict each other: by one id, one opener, or one think tag with two ends.

    Attributes:
        dialects: in the order in which they were given.
        openers: markers that count wherever they stand outside of code.
        line_openers: markers that count only at the start of a line.
        patterns: markers of which there are too many for a list, and their first characters, `pattern_firsts`.
        after_name: what stands behind a name with which a message begins.
        closers: what stands behind calls and means nothing by itself: closing tags, texts of end tokens.
        ends: the end tokens of these.
        think: how a think block begins → how it ends.
        think_closers: those of its ends that do not end a message as well.
        answer_headers: what may stand between a think block and the answer.
        tokens: all markup that may be tokens of a vocabulary, apart from what ends a turn.
    """

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        every = tuple(dialects)
        self.dialects: Mapping[str, Dialect] = _joined({one.id: one} for one in every)
        self.openers: Mapping[str, Reader] = _joined(one.openers for one in every)
        self.line_openers: Mapping[str, Reader] = _joined(one.line_openers for one in every)
        self.patterns: tuple[OpenPattern, ...] = tuple(one.pattern for one in every if one.pattern is not None)
        self.pattern_firsts = frozenset(one.first for one in self.patterns)
        self.after_name: Mapping[str, NamedReader] = _joined(one.after_name for one in every)
        self.ends = frozenset(text for one in every for text in one.ends)
        self.closers = self.ends.union(*(one.closers for one in every))
        self.think: Mapping[str, str] = _joined(one.think for one in every)
        self.think_closers = frozenset(self.think.values()) - self.ends
        self.answer_headers = frozenset(text for one in every for text in one.answer_headers)
        self._tokens = frozenset(text for one in every for text in one.tokens)
        self._by_marks = sorted(
            ((one, marks) for one in every for marks in one.marks), key=lambda row: _rank(row[0], row[1])
        )

    # -- what stands in a text -----------------------------------------------------------------------------------------

    @cached_property
    def opener_literals(self) -> Literals:
        """Literals of `openers`."""
        return Literals(self.openers)

    @cached_property
    def anywhere_literals(self) -> Literals:
        """Literals that count anywhere outside of code: openers and closers of calls, closers of thoughts."""
        return Literals([*self.openers, *self.closers, *self.think_closers])

    @cached_property
    def line_literals(self) -> Literals:
        """Literals of `line_openers`."""
        return Literals(self.line_openers)

    @cached_property
    def after_name_literals(self) -> Literals:
        """Literals of `after_name`."""
        return Literals(self.after_name)

    @cached_property
    def closer_literals(self) -> Literals:
        """Literals of `closers`."""
        return Literals(self.closers)

    @cached_property
    def end_literals(self) -> Literals:
        """Literals of `ends`."""
        return Literals(self.ends)

    @cached_property
    def think_literals(self) -> Literals:
        """Literals with which thoughts begin."""
        return Literals(self.think)

    @cached_property
    def think_closer_literals(self) -> Literals:
        """Literals of `think_closers`."""
        return Literals(self.think_closers)

    @cached_property
    def answer_literals(self) -> Literals:
        """Literals of `answer_headers`."""
        return Literals(self.answer_headers)

    @cached_property
    def candidate(self) -> re.Pattern[str]:
        """Pattern of a character with which a marker may begin."""
        firsts = {text[0] for text in self.anywhere_literals.texts} | self.pattern_firsts
        return re.compile("[" + re.escape("".join(sorted(firsts))) + "\n]")

    def reader(self, opener: str) -> Reader:
        """Return the reader of what follows this opener, which is one of the registry's."""
        reader = self.openers.get(opener) or self.line_openers.get(opener)
        return reader or next(one.read for one in self.patterns if one.is_opener(opener))

    # -- what a template or a prompt tells -----------------------------------------------------------------------------

    def asked_by(self, template: str) -> str | None:
        """Return the id of the dialect that a chat template asks for; None if it has the marks of none."""
        return next((one.id for one, marks in self._by_marks if _has(template, marks)), None)

    def is_swallowed(self, template: str) -> bool:
        """Return whether the engine's parser for this template drops what it does not understand."""
        return any(_has(template, marks) for one in self.dialects.values() for marks in one.swallowed)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """All markup that may be tokens of a model's vocabulary, but what ends a turn in any dialect."""
        markup = {*self.openers, *self.line_openers, *self.closers, *self.think, *self.think.values(), *self._tokens}
        return tuple(sorted(text for text in markup - self.ends if not _PLAIN.fullmatch(text)))

    def turn_tokens(self, prompt: str) -> tuple[str, ...]:
        """Return the texts that only look like the end of a turn in this prompt's dialect."""
        asked = (one for one in self.dialects.values() if any(_has(prompt, marks) for marks in one.marks))
        return tuple(text for one in asked for text in one.turn_tokens)


_PLAIN = re.compile(r"\w+[:\[]|>+")
"""Openers that are ordinary text: a word with a colon or a bracket, a few arrows."""


def _has(text: str, marks: Marks) -> bool:
    return all(mark in text for mark in marks)


def _rank(dialect: Dialect, marks: Marks) -> tuple[int, int, int, str]:
    return dialect.precedence, -len(marks), -sum(map(len, marks)), dialect.id


def _joined(parts: Iterable[Mapping[str, T]]) -> Mapping[str, T]:
    """Return all of these in one, in the same order in every process. Raise ValueError if two map a key differently."""
    joined: dict[str, T] = {}
    for part in parts:
        for key, value in sorted(part.items(), key=lambda item: item[0]):
            if joined.setdefault(key, value) != value:
                raise ValueError(f"Two dialects claim {key!r}; one of them has to let go of it.")
    return joined
