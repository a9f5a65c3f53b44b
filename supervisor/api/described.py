"""How routes describe their answers, for the schema. The forms themselves are in `answers` and in the services."""

from __future__ import annotations

from typing import Any

EVENTS = "text/event-stream"
_TEXT = {"schema": {"type": "string"}}
_untold: list[tuple[dict[str, Any], Any]] = []


def shaped(form: Any, *, status: int = 200, also: int | None = None, streamed: bool = False) -> dict[str, Any]:
    """Describe a route's answer: JSON of a form, with another status too, or a stream of events instead.

    The framework hears of the form by `tell_forms`.
    """
    described: dict[int, dict[str, Any]] = {one: {} for one in (status, also) if one is not None}
    _untold.extend((one, form) for one in described.values())
    if streamed:
        described[status]["content"] = {EVENTS: {}}
    return {"response_model": None, "status_code": status, "responses": described}


def tell_forms() -> None:
    """Let an application that is made afterwards know the forms of answers; that takes a tenth of a start."""
    while _untold:
        described, form = _untold.pop()
        described["model"] = form


def written(*media_types: str) -> dict[str, Any]:
    """The same of a route that answers with text, of one of these types."""
    content = {media_type: {} if media_type == EVENTS else _TEXT for media_type in media_types}
    return {"response_model": None, "responses": {200: {"content": content}}}
