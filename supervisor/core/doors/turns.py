"""Which request is turned by what: a row for each path of another program's API on which a model answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.doors import lmstudio
from supervisor.core.doors.ollama_requests import chat, embed, embeddings, generate
from supervisor.core.doors.turned import Turn

TURNS: Final[Mapping[str, Turn]] = {
    "/api/chat": chat,
    "/api/generate": generate,
    "/api/embed": embed,
    "/api/embeddings": embeddings,
    "/api/v0/chat/completions": lmstudio.chat,
    "/api/v0/completions": lmstudio.completion,
    "/api/v0/embeddings": lmstudio.embeddings,
}
"""The turn of each path."""
