"""The events of the recoverer, in the order of the document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Channel: TypeAlias = Literal["content", "reasoning"]


@dataclass(frozen=True, slots=True)
class Text:
    """Text for the client, unchanged."""

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The beginning of a call.

    Attributes:
        index: dense, from 0.
        name: as the request declared it.
        id: the model's own where its format has ids, else from the maker that was handed in.
        dialect: the id of one of the registry.
    """

    index: int
    name: str
    id: str
    dialect: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the call's JSON arguments; all pieces together are one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of a call.

    Attributes:
        complete: False if the turn was cut after its first pieces had been given out.
        repaired: the text was not what its format demands.
    """

    index: int
    complete: bool = True
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """Text of the model that reaches nobody: the markup of calls and of a think block. For the log and for counting.

    `Text` and `Dropped` of a channel, joined in order, are what was fed.
    """

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class LeftAsText:
    """Something that began like a call and stayed text.

    Attributes:
        opener: the marker.
        why: `not_a_call`, `unknown_tool`, `too_long`, `budget`, `reasoning` or `parallel`.
    """

    opener: str
    why: str


Event: TypeAlias = Text | CallStart | CallArguments | CallEnd | Dropped | LeftAsText
