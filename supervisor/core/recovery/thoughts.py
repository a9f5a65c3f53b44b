"""Show a reply that is nothing but thoughts as the answer, where a request or its model asks for that.

A model that never closes its reasoning, or that stops right behind it, has said what it had to say there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.recovery.typed import Choice, Chunk
from supervisor.errors import InvalidRequest

FIELD: Final = "reasoning_only"
_VALUES: Final = {"answer": True, "keep": False}


def shows_thoughts(asked: Mapping[str, object], default: str) -> bool:
    """Return whether thoughts alone are to be the answer; `default`: as the model has it. Raise InvalidRequest."""
    value = asked.get(FIELD)
    wanted = default if value is None else value
    if not isinstance(wanted, str) or wanted not in _VALUES:
        raise InvalidRequest(f'`{FIELD}` must be "answer" or "keep".', param=FIELD)
    return _VALUES[wanted]


class Thoughts:
    """The thoughts of one streamed answer: given out once more, as content, where the model stops without any."""

    def __init__(self) -> None:
        self._thoughts: dict[int, list[str]] = {}
        self._said: set[int] = set()

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """Return the chunks for the client instead of this one; the chunk itself where nothing changes."""
        found = [self._content(choice) for choice in chunk.get("choices") or ()]
        made: list[Chunk] = [{**_head(chunk), "choices": [one]} for one in found if one is not None]
        return [*made, chunk]

    def _content(self, choice: Choice) -> Choice | None:
        """Take in a choice. Return one with all its thoughts as content, where it ends here without any."""
        index, delta = choice.get("index", 0), choice.get("delta") or {}
        if delta.get("content") or delta.get("tool_calls"):
            self._said.add(index)
        if thought := delta.get("reasoning_content"):
            self._thoughts.setdefault(index, []).append(thought)
        if choice.get("finish_reason") != "stop" or index in self._said or index not in self._thoughts:
            return None
        return {"finish_reason": None, "index": index, "delta": {"content": "".join(self._thoughts[index])}}


def answered(answer: Chunk) -> Chunk:
    """Return a whole answer, with the thoughts as content where the model stopped without any."""
    choices = answer.get("choices")
    return {**answer, "choices": [_answered(choice) for choice in choices]} if isinstance(choices, list) else answer


def _answered(choice: Choice) -> Choice:
    message = choice.get("message") or {}
    thoughts = message.get("reasoning_content")
    silent = not message.get("content") and not message.get("tool_calls")
    if not thoughts or not silent or choice.get("finish_reason") != "stop":
        return choice
    return {**choice, "message": {**message, "content": thoughts}}


def _head(chunk: Chunk) -> Chunk:
    """Return a chunk without what belongs to one of its kind alone."""
    head: Chunk = {**chunk}
    for name in ("usage", "timings", "prompt_progress", "__verbose"):
        head.pop(name, None)  # type: ignore[misc] # a name of the typed keys, chosen above
    return head
