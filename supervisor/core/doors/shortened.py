"""Leave out the oldest messages of a conversation that is too long for its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from supervisor.core.doors.turned import Head

_LONGEST: Final = 1 << 22  # characters of a text that are counted
_EACH: Final = 16  # characters that a message counts besides its text: its role and its marks
_TOO_LONG: Final = "exceed_context_size_error"
_SPARE: Final = 32  # a part of the context is left for what the estimate is off


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The tokens of a prompt, and those of the context that it exceeds."""

    prompt: int
    context: int

    @classmethod
    def of(cls, error: Mapping[str, Any]) -> Exceeded | None:
        """Return what the engine's error says; None where it is another one."""
        prompt, context = error.get("n_prompt_tokens"), error.get("n_ctx")
        if error.get("type") != _TOO_LONG or not isinstance(prompt, int) or not isinstance(context, int):
            return None
        return cls(prompt, context)


def shortened(messages: Sequence[object], exceeded: Exceeded, head: Head) -> list[object] | None:
    """Return the messages without the oldest; None where nothing is left to be left out.

    Those with the role `system` stay, and the last one. A character counts as many tokens as on the average of the
    prompt that was too long. The result of a call goes with the call.
    """
    sizes = [_size(message, head) for message in messages]
    share = exceeded.prompt / max(1, sum(sizes))
    surplus = exceeded.prompt - (exceeded.context - exceeded.context // _SPARE)
    gone: set[int] = set()
    for number, message in enumerate(messages[:-1]):
        if _role(message) == "system":
            continue
        follows = _role(message) == "tool" and bool(gone)
        if surplus <= 0 and not follows:
            break
        gone.add(number)
        surplus -= int(sizes[number] * share)
    return [message for number, message in enumerate(messages) if number not in gone] if gone else None


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, Mapping) else None


def _size(value: object, head: Head) -> int:
    """Return the characters of all texts in a message."""
    if isinstance(value, str):
        return len(head(value, _LONGEST))
    if isinstance(value, Mapping):
        return _EACH + sum(_size(one, head) for one in value.values())
    return sum(_size(one, head) for one in value) if isinstance(value, list) else 0
