"""Help for agents, which a request asks for in `agent_help`; the engine never sees that field.

nudge: a model that announces an action and stops without calling anything is asked to go on. repeats: where a turn
makes the same call with the same arguments again, its result says so to the model.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.recovery.arguments import Values
from supervisor.core.recovery.shapes import items, mapping
from supervisor.errors import InvalidRequest

FIELD: Final = "agent_help"
MOST_NUDGES: Final = 3
_KEYS: Final = frozenset({"nudge", "repeats"})
_NUDGE: Final = (
    "You announced an action but called no tool. Call the tool now, or, if none is needed, give the final answer."
)
_TAIL: Final = 400  # characters at the end of a text in which an announcement counts
_WHO: Final = r"(?:I['’]?ll|I will|I['’]?m going to|I am going to|I need to|let me|let['’]s|now I)"
_VERBS: Final = (
    *("analy[sz]e", "apply", "build", "call", "change", "check", "compute", "create", "delete", "download", "edit"),
    *("examine", "execute", "explore", "fetch", "find", "fix", "get", "inspect", "install", "invoke", "list", "load"),
    *("look", "modify", "open", "query", "read", "retrieve", "review", "run", "scan", "search", "see", "start", "test"),
    *("try", "update", "use", "verify", "view", "write"),
)
_ANNOUNCED: Final = re.compile(rf"\b{_WHO}\s+(?:\w+\s+){{0,3}}?(?:{'|'.join(_VERBS)})\b[^?]*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AgentHelp:
    """The help that a request asks for; `nudges`: at most so many."""

    nudges: int = 0
    repeats: bool = False


def asked_help(body: Mapping[str, object]) -> AgentHelp:
    """Return the help that a request asks for. Raise InvalidRequest where that is no valid form."""
    asked = body.get(FIELD)
    if asked is None:
        return AgentHelp()
    if not isinstance(asked, Mapping) or not _KEYS.issuperset(asked):
        raise InvalidRequest(f"`{FIELD}` must be an object with `nudge` and `repeats`, both optional.", param=FIELD)
    nudge, repeats = asked.get("nudge", False), asked.get("repeats", False)
    if not isinstance(repeats, bool):
        raise InvalidRequest(f"`{FIELD}.repeats` must be true or false.", param=FIELD)
    if isinstance(nudge, bool):
        return AgentHelp(MOST_NUDGES if nudge else 0, repeats)
    if not isinstance(nudge, int) or not 0 <= nudge <= MOST_NUDGES:
        raise InvalidRequest(f"`{FIELD}.nudge` must be true, false or 0 to {MOST_NUDGES}.", param=FIELD)
    return AgentHelp(nudge, repeats)


def announces(text: str) -> bool:
    """Return whether a text ends with an announcement of what its writer is about to do. English only."""
    return _ANNOUNCED.search(text[-_TAIL:]) is not None


def nudged(messages: object, said: str) -> list[object]:
    """Return the messages that ask a model which said this to do it."""
    return [
        *(messages if isinstance(messages, list) else ()),
        {"role": "assistant", "content": said},
        {"role": "user", "content": _NUDGE},
    ]


def with_warnings(messages: object) -> list[object] | None:
    """Return the messages with a note in each result of a call that this turn had made before; None where none was.

    A turn begins with the user's last message. What is counted are calls with the same name and equal arguments.
    """
    if not isinstance(messages, list):
        return None
    counts: Counter[str] = Counter()
    values = Values()
    repeated: dict[str, int] = {}  # id of a call → how often it has been made by then
    out: list[object] = []
    for message in messages:
        changed = message
        if isinstance(message, Mapping):
            if message.get("role") == "user":
                counts.clear()
            for call in map(mapping, items(message.get("tool_calls"))):
                key = _key(call, values)
                counts[key] += 1
                repeated[str(call.get("id"))] = counts[key]
            times = repeated.get(str(message.get("tool_call_id")), 1) if message.get("role") == "tool" else 1
            changed = _warned(message, times) if times > 1 else message
        out.append(changed)
    return out if any(new is not old for new, old in zip(out, messages, strict=True)) else None


def _key(call: Mapping[str, object], values: Values) -> str:
    function = mapping(call.get("function"))
    arguments = function.get("arguments")
    try:
        value = values.of(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        value = arguments
    return json.dumps([function.get("name"), value], sort_keys=True)


def _warned(message: Mapping[str, object], times: int) -> dict[str, object]:
    note = (
        f"[This is call number {times} with the same arguments. Do not make it again: use what you have, "
        "try something else, or answer.]"
    )
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": note}]}
    return {**message, "content": f"{content}\n\n{note}" if content else note}
