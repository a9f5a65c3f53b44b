"""Values that LocalAI wrote in a form of its own: numbers of 32 bits, JSON in a text."""

from __future__ import annotations

from typing import Any

from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import InvalidRequest


def as_written(number: float) -> float:
    """Return the short number that a float of 32 bits was made from: 0.9 for 0.8999999761581421."""
    return float(f"{number:.6g}")


def json_of(field: str, text: str) -> Any:
    """Return the value of a field that is JSON. Raises InvalidRequest with the field's name."""
    try:
        return parse(text)
    except NotJson as error:
        raise InvalidRequest(f"{field} is not JSON: {error}", param=field) from None


def object_of(field: str, text: str) -> dict[str, Any]:
    """Return the value of a field that is a JSON object. Raises InvalidRequest with the field's name."""
    found = json_of(field, text)
    if not isinstance(found, dict):
        raise InvalidRequest(f"{field} is not a JSON object.", param=field)
    return found
