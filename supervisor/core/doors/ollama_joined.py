"""Make one object of the lines of an answer in Ollama's form, as a client without a stream would have had it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from supervisor.core.text.foreignjson import NotJson, parse, written

_TEXTS: Final = ("content", "thinking", "response")
_LISTS: Final = ("tool_calls", "logprobs")


def joined(lines: bytes) -> bytes:
    """Return the object, as far as the lines go; the lines as they are where they are none of these."""
    found = _objects(lines)
    if not found:
        return lines
    messages = [one["message"] for one in found if isinstance(one.get("message"), dict)]
    whole = _joined(found)
    return written({**whole, "message": _joined(messages)} if messages else whole)


def _objects(lines: bytes) -> list[dict[str, Any]]:
    """Return what the whole lines say; nothing where one says something else."""
    found: list[dict[str, Any]] = []
    for line in lines[: lines.rfind(b"\n") + 1].splitlines():
        try:
            said = parse(line)
        except NotJson:
            return []
        if not isinstance(said, dict):
            return []
        found.append(said)
    return found


def _joined(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an object with what each part adds; of anything but texts and lists the last one counts."""
    out: dict[str, Any] = {}
    pieces: dict[str, list[str]] = {}
    for part in parts:
        for key, value in part.items():
            if key in _TEXTS and isinstance(value, str):
                pieces.setdefault(key, []).append(value)
            elif key in _LISTS and isinstance(value, list):
                out.setdefault(key, []).extend(value)
            else:
                out[key] = value
    return {**out, **{key: "".join(texts) for key, texts in pieces.items()}}
