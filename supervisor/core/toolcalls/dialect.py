"""The record of one dialect: everything that the rest of the program needs to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from supervisor.core.toolcalls.block import NamedReader, OpenPattern, Reader

Marks: TypeAlias = tuple[str, ...]
"""Texts of a chat template, all of which must be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A way in which models write tool calls.

    What several dialects write alike, such as an end token, each of them may name. An opener belongs to one: its reader
    tells by what follows which dialect it is.

    Attributes:
        id: its name in answers, counters and the docs.
        models: who speaks it.
        openers: what begins calls wherever it stands outside of code, and who reads on behind it.
        line_openers: the same for what counts at the start of a line only.
        pattern: openers that no list can hold.
        after_name: for calls that begin with a declared name and are the whole message: what stands behind the name.
        closers: what closes calls, and means nothing behind one.
        ends: texts of tokens that end a message, and mean nothing behind a call.
        think: how a think block begins → how it ends.
        answer_headers: what may stand between a think block and the answer.
        tokens: markup inside of calls and messages that may be tokens of the model's vocabulary.
        turn_tokens: the same for what ends the turn in other dialects: shown only if the prompt has the `marks`.
        marks: texts of chat templates that ask for this dialect.
        precedence: which dialect a template asks for that has marks of several: the one with the lowest, then with the
            most marks, then with the longest. 0: tokens of its own; 1: texts that other templates may hold, too; 2: a
            mere wrapper.
        swallowed: marks of templates for which the engine's parser drops what it does not understand.
    """

    id: str
    models: str
    openers: Mapping[str, Reader] = field(default_factory=dict)
    line_openers: Mapping[str, Reader] = field(default_factory=dict)
    pattern: OpenPattern | None = None
    after_name: Mapping[str, NamedReader] = field(default_factory=dict)
    closers: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    think: Mapping[str, str] = field(default_factory=dict)
    answer_headers: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    turn_tokens: tuple[str, ...] = ()
    marks: tuple[Marks, ...] = ()
    precedence: int = 0
    swallowed: tuple[Marks, ...] = ()
