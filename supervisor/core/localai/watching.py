"""Whether, and how often, a backend looks for the process that started it; by LocalAI's variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

WATCH: Final = "LOCALAI_BACKEND_PARENT_WATCH"
INTERVAL: Final = "LOCALAI_BACKEND_PARENT_WATCH_INTERVAL"
USUAL_SECONDS: Final = 2.0

_DURATION: Final = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>ms|s|m|)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0}
_OFF: Final = frozenset({"false", "0", "no", "off"})


def watch_seconds(env: Mapping[str, str], parent: int) -> float | None:
    """Return after how many seconds to look again; None: not at all.

    parent: the process that started this one; 1, or less, is nobody's.
    """
    if parent <= 1 or env.get(WATCH, "").strip().lower() in _OFF:
        return None
    found = _DURATION.fullmatch(env.get(INTERVAL, "").strip())
    seconds = float(found["number"]) * _UNITS[found["unit"]] if found else 0.0
    return seconds or USUAL_SECONDS
