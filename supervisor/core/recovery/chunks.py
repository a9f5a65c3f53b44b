"""Recover a chat's answer in chunks: the engine's in, the client's out, with recovery for each choice of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, cast

from supervisor.core.options.kinds import MOST_SLOTS
from supervisor.core.recovery.choice import ChoiceRecovery
from supervisor.core.recovery.tally import Tally
from supervisor.core.recovery.typed import Choice, Chunk, Delta, Head, numbered
from supervisor.core.stream.chat import ChoiceFold
from supervisor.core.toolcalls.whole import Request
from supervisor.errors import EngineStreamInvalid

_FACTS: Final = frozenset({"prompt_progress", "__verbose"})
"""Fields of a chunk beside its text, which go on where the text is held back."""

_SHARED: Final = ("id", "object", "created", "model", "system_fingerprint")
_UNPARSED: Final = re.compile(r"Failed to parse input at pos \d+: ?")
"""In this message, older builds of the engine put the text that their parser did not understand."""


_TOO_MANY: Final = f"The engine's answer has more than {MOST_SLOTS} choices, which is more than it has slots."
_MOST_CALLS: Final = 1024


class Recovery(Protocol):
    """A conversion of an answer's chunks.

    Attributes:
        head: what the engine's chunks share.
    """

    head: Head

    @property
    def has_said(self) -> bool:
        """True if text or a call has been given out, or found."""
        ...

    def feed(self, chunk: Chunk, /) -> list[Chunk]:
        """Return the chunks for the client instead of this one."""
        ...

    def flush(self) -> list[Chunk]:
        """Return the chunks that are held."""
        ...

    def save(self, error: Mapping[str, object], /) -> tuple[list[Chunk], bool]:
        """Return what can be saved where the engine failed: chunks, and whether they are a proper end."""
        ...


class Untouched:
    """Chunks as they are: nothing is looked for. See `Recovery`."""

    has_said = False

    def __init__(self) -> None:
        self.head: Head = {}

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """Return the chunk."""
        return [chunk]

    def flush(self) -> list[Chunk]:
        """Return nothing, as nothing is held."""
        return []

    def save(self, error: Mapping[str, object]) -> tuple[list[Chunk], bool]:
        """Return nothing to save."""
        return [], False


class ChatRecovery:
    """The recovery of one answer's chunks.

    Args:
        request: its tools, and how to recover.
        make_id: gives a call without an id one.
        tally: counts what happens.
        goes_on: what the chunks of an answer share that this one goes on behind, for the client knows of one only.

    Attributes:
        head: what the engine's chunks share.
    """

    def __init__(self, request: Request, make_id: Callable[[], str], tally: Tally, goes_on: Head | None = None) -> None:
        self._request = request
        self._make_id = make_id
        self._tally = tally
        self._choices: dict[int, ChoiceRecovery] = {}
        self._goes_on = goes_on
        self.head: Head = {}

    @property
    def has_said(self) -> bool:
        """True if text or a call has been given out, or found."""
        return any(choice.has_said for choice in self._choices.values())

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """Return the chunks for the client instead of this one; the chunk itself where nothing changes."""
        if self._goes_on is not None:
            chunk = {**chunk, **self._goes_on}
        self.head = cast(Head, {key: chunk[key] for key in _SHARED if key in chunk})
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            return [chunk]
        _check_number(choices)
        out: list[Chunk] = []
        for choice in choices:
            out += self._choice(chunk, choice, alone=len(choices) == 1)
        return out

    def flush(self) -> list[Chunk]:
        """Return what is held, where the answer broke off or ended without a finish reason."""
        out: list[Chunk] = []
        for index, choice in self._choices.items():
            if not choice.finished:
                deltas, _ = choice.finish(None)
                out += [self._made(index, delta) for delta in deltas]
        return out

    def save(self, error: Mapping[str, object]) -> tuple[list[Chunk], bool]:
        """Return what can be saved where the engine's parser failed: chunks, and whether they are a proper end.

        They are where at least one call is complete and none is half said; else the error is for the client.
        """
        unparsed = _unparsed(error)
        chunks: list[Chunk] = []
        for index, choice in self._choices.items():
            if unparsed and not choice.finished and len(self._choices) == 1:
                chunks += [self._made(index, delta) for delta in choice.feed({"content": unparsed})]
        chunks += self.flush()
        given = self._choices.values()
        saved = any(one.has_calls() for one in given) and all(one.is_whole() for one in given)
        if saved:
            self._tally.saved = True
            for index, choice in self._choices.items():
                chunks.append(self._made(index, {}, "tool_calls" if choice.has_calls() else "stop"))
        return chunks, saved

    def whole(self, answer: Chunk) -> Chunk:
        """Return the same for an answer that was not streamed."""
        choices = answer.get("choices")
        if not isinstance(choices, list):
            return answer
        _check_number(choices)
        return {**answer, "choices": [self._message(choice) for choice in choices]}

    def _message(self, choice: Choice) -> Choice:
        """Return a choice with its message, folded from what its text and calls become."""
        message = choice.get("message") or {}
        calls = numbered(message)
        recovery = self._of(choice.get("index", 0))
        texts: Delta = {"reasoning_content": message.get("reasoning_content"), "content": message.get("content")}
        deltas = recovery.feed(texts)
        deltas += recovery.feed({"tool_calls": calls}) if calls else []
        rest, reason = recovery.finish(choice.get("finish_reason"))
        fold = ChoiceFold(choice.get("index", 0))
        for delta in [*deltas, *rest]:
            fold.feed({"delta": delta})
        folded = fold.result()["message"]
        assert isinstance(folded, dict)
        kept = {key: value for key, value in message.items() if key not in {"reasoning_content", "tool_calls"}}
        said = cast(Delta, {**kept, **folded, "role": message.get("role", "assistant")})
        return {**choice, "message": said, "finish_reason": reason}

    def _choice(self, chunk: Chunk, choice: Choice, *, alone: bool) -> list[Chunk]:
        index = choice.get("index", 0)
        recovery = self._of(index)
        delta = choice.get("delta") or {}
        deltas = recovery.feed(delta)
        reason = choice.get("finish_reason")
        if reason is None:
            return self._going_on(chunk, choice, deltas, alone=alone)
        rest, changed = recovery.finish(reason)
        if alone and changed == reason and not rest and deltas == ([delta] if delta else []):
            return [chunk]
        reason = changed
        out: list[Chunk] = [self._made(index, one) for one in [*deltas, *rest]]
        out.append({**chunk, "choices": [{**choice, "delta": {}, "finish_reason": reason}]})
        return out

    def _going_on(self, chunk: Chunk, choice: Choice, deltas: list[Delta], *, alone: bool) -> list[Chunk]:
        if alone and deltas == [choice.get("delta")]:
            return [chunk]
        out: list[Chunk] = []
        for number, delta in enumerate(deltas):
            first: Choice = {**choice, "delta": delta}
            later: Choice = {"finish_reason": None, "index": choice.get("index", 0), "delta": delta}
            out.append({**chunk, "choices": [later if number else first]})
        if not out and not _FACTS.isdisjoint(chunk):
            out.append({**chunk, "choices": [{**choice, "delta": {}}]})
        return out

    def _of(self, index: int) -> ChoiceRecovery:
        if index not in self._choices:
            if len(self._choices) >= MOST_SLOTS:
                raise EngineStreamInvalid(_TOO_MANY)
            has_role = self._goes_on is not None
            self._choices[index] = ChoiceRecovery(
                self._request.recoverer, self._make_id, self._tally, has_role=has_role
            )
        return self._choices[index]

    def _made(self, index: int, delta: Delta, reason: str | None = None) -> Chunk:
        return {**self.head, "choices": [{"finish_reason": reason, "index": index, "delta": delta}]}


def _check_number(choices: Sequence[object]) -> None:
    """Raise EngineStreamInvalid for more choices than an engine has slots, or calls without end in one of them."""
    if len(choices) > MOST_SLOTS:
        raise EngineStreamInvalid(_TOO_MANY)
    for choice in choices:
        said = (choice.get("delta") or choice.get("message")) if isinstance(choice, Mapping) else None
        calls = said.get("tool_calls") if isinstance(said, Mapping) else None
        if isinstance(calls, list) and len(calls) > _MOST_CALLS:
            raise EngineStreamInvalid(f"The engine's answer has more than {_MOST_CALLS} tool calls at once.")


def _unparsed(error: Mapping[str, object]) -> str:
    message = error.get("message")
    found = _UNPARSED.search(message) if isinstance(message, str) else None
    return found.string[found.end() :] if found else ""
