"""Fold the events of a streamed `/v1/responses` into the one response.

Measured on llama-server b11434: the last event holds the whole response but for two things, which its single answer
has: `completed_at`, and the status of an item of reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.stream.fold import well_shaped
from supervisor.core.text.foreignjson import NotJson, parse

_COMPLETED = {"status": "completed"}


class ResponsesFold:
    """The collector of one answer's events."""

    def __init__(self) -> None:
        self._response: dict[str, object] = {}

    @property
    def done(self) -> bool:
        """True if the last event has come."""
        return bool(self._response)

    def feed(self, event: Mapping[str, object]) -> None:
        """Add one event. Raise `EngineStreamInvalid` for one of another shape."""
        if event.get("type") != "response.completed":
            return
        with well_shaped():
            response = event["response"]
            if not isinstance(response, dict) or not isinstance(response.get("output"), list):
                raise TypeError("no response in it")
            items = [item if "status" in item else {**item, **_COMPLETED} for item in response["output"]]
            self._response = {"completed_at": response.get("created_at"), **response, "output": items}

    def response(self) -> dict[str, object]:
        """Return the response."""
        return self._response


def answer_id(events: bytes) -> str | None:
    """Return the id of the response in the first of its events; None where that is not whole, or of another shape."""
    _, found, data = events.partition(b"data:")
    try:
        event = parse(data.partition(b"\n")[0]) if found else None
    except NotJson:
        return None
    response = event.get("response") if isinstance(event, dict) else None
    told = response.get("id") if isinstance(response, dict) else None
    return told if isinstance(told, str) else None
