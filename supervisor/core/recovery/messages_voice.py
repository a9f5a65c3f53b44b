"""An answer in the form of `/v1/messages`: blocks of thinking, text and calls, in the order in which they came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from supervisor.core.recovery.typed import Chunk, Delta, Usage
from supervisor.core.recovery.voices import message_of, named
from supervisor.core.stream.apis import ANTHROPIC
from supervisor.core.text.foreignjson import NotJson, parse

Block: TypeAlias = Mapping[str, object]
"""A block of a message, or an event about one."""

_REASONS: Final[Mapping[str | None, str]] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TEXTS: Final = {"reasoning_content": ("thinking", "thinking_delta"), "content": ("text", "text_delta")}


class MessagesVoice:
    """One answer; see `Voice`."""

    verbatim = False
    comments = True

    def __init__(self) -> None:
        self._started = False
        self._first: Chunk = {}  # chunk, before it is known how long the prompt is
        self._blocks = 0
        self._open: str | int | None = None  # the present block: a kind of text, or the index of a call
        self._reason: str | None = None
        self._stop_word: str | None = None
        self._usage: Usage = {}

    def chunk(self, chunk: Chunk) -> bytes:
        """Return its texts and calls as events of blocks."""
        out: list[Block] = []
        self._first = self._first or chunk
        if not self._started and (_says_something(chunk) or "prompt_progress" in chunk):
            out.append(self._start(chunk))
        self._stop_word = _stop_word(chunk) or self._stop_word
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            out += self._delta(choice.get("delta") or {})
            self._reason = choice.get("finish_reason") or self._reason
        return b"".join(map(named, out))

    def end(self) -> bytes:
        """Return stop reason, usage and `message_stop`."""
        last = {"stop_reason": _REASONS.get(self._reason, "end_turn"), "stop_sequence": self._stop_word}
        out = [
            *(() if self._started else (self._start(self._first),)),
            *self._closed(),
            {"type": "message_delta", "delta": last, "usage": _usage(self._usage)},
            {"type": "message_stop"},
        ]
        return b"".join(map(named, out))

    def error(self, error: Mapping[str, object]) -> bytes:
        """Return the event `error`."""
        return ANTHROPIC.stream_error(error)

    def whole(self, answer: Chunk) -> Block:
        """Return a message with all its blocks."""
        message, reason = message_of(answer)
        blocks: list[Block] = []
        if message.get("reasoning_content"):
            blocks.append({"type": "thinking", "thinking": message["reasoning_content"], "signature": ""})
        if message.get("content"):
            blocks.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls") or ():
            function = call["function"]
            used = {"type": "tool_use", "id": call.get("id"), "name": function.get("name")}
            blocks.append({**used, "input": _input(function.get("arguments"))})
        said = _message(answer, blocks, _REASONS.get(reason, "end_turn"), answer.get("usage") or {})
        return {**said, "stop_sequence": _stop_word(answer)}

    def _start(self, chunk: Chunk) -> Block:
        self._started = True
        return {"type": "message_start", "message": _message(chunk, [], None, _progressed(chunk))}

    def _delta(self, delta: Delta) -> list[Block]:
        out: list[Block] = []
        for key, (kind, name) in _TEXTS.items():
            text = delta.get(key)
            if text:
                empty = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
                out += self._at(kind, empty)
                out.append(self._piece({"type": name, kind: text}))
        for part in delta.get("tool_calls") or ():
            function = part.get("function") or {}
            begun: Block = {"type": "tool_use", "id": part.get("id"), "name": function.get("name"), "input": {}}
            out += self._at(part.get("index", 0), begun)
            if function.get("arguments"):
                out.append(self._piece({"type": "input_json_delta", "partial_json": function["arguments"]}))
        return out

    def _at(self, block: str | int, begun: Block) -> list[Block]:
        """Go to this block: end the one before, begin this one."""
        if self._open == block:
            return []
        out = self._closed()
        self._open = block
        self._blocks += 1
        return [*out, {"type": "content_block_start", "index": self._blocks - 1, "content_block": begun}]

    def _closed(self) -> list[Block]:
        if self._open is None:
            return []
        signed = [self._piece({"type": "signature_delta", "signature": ""})] if self._open == "thinking" else []
        self._open = None
        return [*signed, {"type": "content_block_stop", "index": self._blocks - 1}]

    def _piece(self, delta: Block) -> Block:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}


def _message(chunk: Chunk, blocks: list[Block], reason: str | None, usage: Usage) -> Block:
    return {
        "id": "msg_" + str(chunk.get("id", "")).removeprefix("chatcmpl-"),
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "model": chunk.get("model"),
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _says_something(chunk: Chunk) -> bool:
    deltas = (choice.get("delta") or {} for choice in chunk.get("choices") or ())
    return any(delta.get(key) for delta in deltas for key in (*_TEXTS, "tool_calls"))


def _progressed(chunk: Chunk) -> Usage:
    """Return the usage so far, from a report on the prompt."""
    progress = chunk.get("prompt_progress") or {}
    cached = progress.get("cache", 0)
    return {"prompt_tokens": progress.get("total", 0), "prompt_tokens_details": {"cached_tokens": cached}}


def _stop_word(chunk: Chunk) -> str | None:
    """Return the stop word that ended the answer; None where there is none, or the engine does not say."""
    return (chunk.get("__verbose") or {}).get("stopping_word") or None


def _usage(usage: Usage) -> Mapping[str, int]:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return {
        "cache_read_input_tokens": cached,
        "input_tokens": usage.get("prompt_tokens", 0) - cached,
        "output_tokens": usage.get("completion_tokens", 0),
    }


def _input(arguments: str | None) -> object:
    """Return the arguments of a call as a value; of one that was cut, nothing."""
    try:
        value: object = parse(arguments or "{}")
    except NotJson:
        return {}
    return value
