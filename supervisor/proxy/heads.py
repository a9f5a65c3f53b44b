"""Make what an answer of ours has of its own: the fields that its chunks share, and the ids of recovered calls."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Mapping
from typing import Final, cast

from supervisor.core.recovery.typed import Head

_DIGITS: Final = string.digits + string.ascii_letters


def call_id() -> str:
    """Return an id for a call, in OpenAI's form; no id is used twice."""
    return "call_" + "".join(secrets.choice(_DIGITS) for _ in range(24))


def new_head(asked: Mapping[str, object]) -> Head:
    """Return the fields that the chunks of an answer share."""
    return {
        "created": int(time.time()),
        "id": f"chatcmpl-{secrets.token_hex(16)}",
        "model": cast(str, asked.get("model")),
    }
