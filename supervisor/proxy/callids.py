"""Make the ids of recovered tool calls."""

from __future__ import annotations

import secrets
import string
from typing import Final

_DIGITS: Final = string.digits + string.ascii_letters


def call_id() -> str:
    """Return an id for a call, in OpenAI's form; no id is used twice."""
    return "call_" + "".join(secrets.choice(_DIGITS) for _ in range(24))
