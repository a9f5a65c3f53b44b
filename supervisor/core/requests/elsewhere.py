"""Paths of other programs that are not here, each with the path of ours that does the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CHAT: Final = "POST /v1/chat/completions"
_PULL: Final = "POST /api/v1/models"
_LOAD: Final = "POST /api/v1/models/load"
_UNLOAD: Final = "POST /api/v1/models/unload"
_STATUS: Final = "GET /api/v1/status"
_ENGINE: Final = "/upstream/MODEL"

ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "Ollama": {
        "/api/status": _STATUS,
        "/api/me": _STATUS,
    },
    "llama-swap": {
        "/logs": "GET /api/v1/logs",
        "/logs/stream": "GET /api/v1/logs",
        "/api/events": "GET /api/v1/events",
    },
    "LM Studio": {
        "/api/v1/chat": _CHAT,
        "/api/v1/models/download": _PULL,
    },
    "LocalAI": {
        "/readyz": "GET /ready",
        "/healthz": "GET /health",
        "/models/apply": _PULL,
        "/backend/monitor": _STATUS,
        "/backend/shutdown": _UNLOAD,
        "/system": _STATUS,
        "/swagger": "GET /docs",
    },
    "vLLM": {
        "/ping": "GET /health",
        "/version": _STATUS,
        "/server_info": _STATUS,
        "/load": "GET /api/v1/requests",
        "/v2/rerank": "POST /v1/rerank",
        "/sleep": _UNLOAD,
        "/wake_up": _LOAD,
        "/is_sleeping": "GET /api/v1/models",
    },
    "llama-server": {
        "/v1/health": "GET /health",
        "/v1/systemone": f"POST {_ENGINE}/v1/systemone",
        "/v1/stream": f"GET {_ENGINE}/v1/stream",
        "/v1/streams/lookup": f"POST {_ENGINE}/v1/streams/lookup",
    },
}
"""Program → its paths → method and path of ours."""

_OURS: Final = {path: (program, ours) for program, paths in ELSEWHERE.items() for path, ours in paths.items()}


def ours_for(path: str) -> str | None:
    """Return a sentence that says which path of ours does what a path of another program does; None for any other."""
    found = _OURS.get(path.rstrip("/"))
    return None if found is None else f"What it does in {found[0]}, {found[1]} does here."
