"""Tell which requests belong together, so that they may go to the engine that has read their beginning before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

CHARACTERS = 4096
"""Of each text; the beginning is what an engine can use again."""

_MOST_PARTS = 64
"""Messages, and parts of one, that are looked at: what comes behind them tells few conversations apart."""


def affinity_of(body: Mapping[str, object], heads: Callable[[object], object] = lambda value: value) -> str | None:
    """Return an opaque key for a request's body; None if nothing ties it to another one.

    heads: a value of the body with the beginnings of its texts, where the body is an outline.


    The client's `prompt_cache_key` counts (OpenAI); else the messages up to the first one of the user, with which all
    turns of a conversation begin; else the beginning of `prompt`.
    """
    key = body.get("prompt_cache_key")
    messages = body.get("messages")
    if isinstance(key, str) and key:
        parts: list[object] = [key]
    elif isinstance(messages, list) and messages:
        roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
        first = roles.index("user") if "user" in roles else 0
        said = messages[: min(first + 1, _MOST_PARTS)]
        parts = [_begun(message.get("content")) for message in said if isinstance(message, dict)]
    elif body.get("prompt"):
        parts = [_begun(body["prompt"])]
    else:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for part in map(heads, parts):
        text = part if isinstance(part, str) else json.dumps(part)
        digest.update(text[:CHARACTERS].encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _begun(value: object) -> object:
    """Return a list without what lies behind its beginning."""
    return value[:_MOST_PARTS] if isinstance(value, list) else value
