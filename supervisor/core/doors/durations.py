"""The time for which a client of Ollama wants a model to stay."""

from __future__ import annotations

import math
import re
from typing import Final

from supervisor.errors import InvalidRequest

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"(\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(ns|us|µs|μs|ms|s|m|h)"
_WHOLE: Final = re.compile(rf"[+-]?(?:{_PART}){{1,16}}")
_MOST: Final = 10.0 * 366 * 86400
"""Seconds; a longer time is for ever."""


def keep_alive(value: object) -> float | None:
    """Return the seconds of a `keep_alive`; infinity where it is negative, None where there is none.

    It is a number of seconds, or a text as Go writes durations, such as `1h30m`. Raise InvalidRequest.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return _bounded(_of_text(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN
        raise _fault()
    return _bounded(value)


def _of_text(text: str) -> float:
    if text in {"0", "-1"}:
        return float(text)
    if _WHOLE.fullmatch(text) is None:
        raise _fault()
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    return -seconds if text.startswith("-") else seconds


def _bounded(seconds: float) -> float:
    return math.inf if seconds < 0 or seconds > _MOST else float(seconds)


def _fault() -> InvalidRequest:
    return InvalidRequest(
        "`keep_alive` must be a number of seconds or a duration such as 5m or 1h30m; negative is for ever.",
        param="keep_alive",
    )
