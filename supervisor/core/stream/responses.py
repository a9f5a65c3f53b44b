"""Fold the events of a streamed `/v1/responses` into the one response.

Measured on llama-server b11434: the last event holds the whole response but for two things, which its single answer
has: `completed_at`, and the status of an item of reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.stream.fold import well_shaped

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
