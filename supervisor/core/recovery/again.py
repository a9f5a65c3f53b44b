"""Answers that are asked for once more: the reason, and what the client keeps of the first one."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from supervisor.core.recovery.typed import Head, Usage

_SILENT: Final = 8


class AskAgain(Exception):
    """Ask the engine once more.

    Attributes:
        head: what the chunks of this answer share.
        keeps: the client keeps what it has been given; the next answer goes on behind it.
        before: what there is to send yet, with `keeps`.
        usage: the tokens that this answer cost, as far as the engine said; None: it did not.
    """

    def __init__(self, head: Head, *, keeps: bool) -> None:
        super().__init__()
        self.head = head
        self.keeps = keeps
        self.before = b""
        self.usage: Usage | None = None


class ParserFailed(AskAgain):
    """The engine could not parse its own model's text, and the client has had none of it: its parser is left out."""


class Nudged(AskAgain):
    """The model announced that it would do something, and did not. `said`: its text."""

    def __init__(self, head: Head, said: str) -> None:
        super().__init__(head, keeps=True)
        self.said = said


class Again(enum.Enum):
    """The condition on which an answer that the engine's parser has failed on may be asked for anew."""

    NEVER = "never"
    UNTIL_SAID = "until said"  # while the client has had no text and no call
    ALWAYS = "always"  # the client gets nothing before the end


@dataclass(frozen=True, slots=True)
class Ending:
    """An answer of one choice in which the model stopped and called nothing.

    Attributes:
        text: its content. size: bytes of all its text, reasoning included.
        tokens: that the engine counted; None where it does not say.
        head: what its chunks share.
    """

    text: str
    size: int
    tokens: int | None
    head: Head

    @property
    def lacks_text(self) -> bool:
        """True if the engine's parser has swallowed text: a token that is text has a byte at least.

        A handful of tokens show nothing: those that end a turn and those around reasoning.
        """
        return self.tokens is not None and self.size + _SILENT < self.tokens


Judge: TypeAlias = Callable[[Ending], AskAgain | None]
"""A judge of whether an answer with this ending is to be asked for once more."""
