"""The fields that are looked at: of a chat's answers as the engine writes them, and of its messages as clients do.

Whatever else there is goes on untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypedDict


class Function(TypedDict, total=False):
    """The function of a call; the arguments are JSON text, or a piece of it."""

    name: str
    arguments: str


class CallPart(TypedDict, total=False):
    """A call, or a piece of one."""

    index: int
    id: str | None
    type: str
    function: Function


class Delta(TypedDict, total=False):
    """A piece of a message, or a whole one."""

    role: str
    content: str | None
    reasoning_content: str | None
    tool_calls: list[CallPart]


class Choice(TypedDict, total=False):
    """A choice of an answer: with a `delta` in a chunk, with a `message` in an answer that was not streamed."""

    index: int
    delta: Delta
    message: Delta
    finish_reason: str | None
    logprobs: Mapping[str, object] | None


class PromptDetails(TypedDict, total=False):
    """The cost of a prompt."""

    cached_tokens: int


class Usage(TypedDict, total=False):
    """The cost of an answer, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Timings(TypedDict, total=False):
    """The engine's own measurements: tokens and milliseconds."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float


class Progress(TypedDict, total=False):
    """The progress of reading the prompt, in tokens."""

    total: int
    cache: int


class Verbose(TypedDict, total=False):
    """The engine's record where it is asked to be verbose."""

    stopping_word: str | None


_Told = TypedDict("_Told", {"__verbose": Verbose}, total=False)


class Chunk(_Told, total=False):
    """A chunk of a chat, or a whole answer."""

    id: str
    object: str
    created: int
    model: str | None
    system_fingerprint: str
    choices: list[Choice]
    usage: Usage
    timings: Timings
    prompt_progress: Progress


Head: TypeAlias = Chunk
"""Of a chunk what all chunks of the answer share."""


class RawEvent(TypedDict, total=False):
    """An event of `/completion`."""

    content: str
    stop: bool
    stop_type: str
    stopping_word: str
    tokens_evaluated: int
    tokens_predicted: int
    timings: Timings
    prompt_progress: Progress


def numbered(message: Delta) -> list[CallPart]:
    """Return the calls of a whole message as those of a delta: each with its index."""
    return [{**call, "index": index} for index, call in enumerate(message.get("tool_calls") or ())]


# -- what a client sends ----------------------------------------------------------------------------------------------
# Nobody has looked at it: `shapes` is for what may have another one.


class SaidFunction(TypedDict, total=False):
    """The function of an earlier call."""

    name: str
    arguments: object


class SaidCall(TypedDict, total=False):
    """A call of an earlier turn."""

    id: str
    type: str
    function: SaidFunction


class Part(TypedDict, total=False):
    """A part of a message's content."""

    type: str
    text: str
    image_url: Mapping[str, object]


class Said(TypedDict, total=False):
    """A message of a conversation."""

    role: str | None
    content: str | list[Part] | None
    reasoning_content: str
    tool_calls: list[SaidCall]
    tool_call_id: str


class Schema(TypedDict, total=False):
    """A JSON schema, as far as a signature shows it."""

    type: object
    description: str
    enum: list[object]
    properties: Mapping[str, Schema]
    required: list[str]


class Tool(TypedDict, total=False):
    """A tool that a request offers."""

    name: str
    description: str
    parameters: Schema
