"""The scope that every path needs of a key: one table, and nothing that is not in it.

A path that is in no row is for keys with the scope `manage` alone, and so is what is in none of the rows of an engine's
own paths. `infer` uses models, `read` looks, `manage` changes, and looks. A row may name several scopes, of which one
will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from supervisor.core.routes import SERVED, UPSTREAM, route_of


class Scope(StrEnum):
    """A part of what the daemon does."""

    INFER = "infer"
    MANAGE = "manage"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Row:
    """The rule of one path.

    Attributes:
        method: HEAD counts as GET.
        path: `{…}` stands for all that follows; the framework's own spelling.
        scopes: one of them will do.
        all_models: only for keys that see every model.
    """

    method: str
    path: str
    scopes: frozenset[Scope]
    all_models: bool = False

    @property
    def generates(self) -> bool:
        """True if it uses a model: tokens count."""
        return self.scopes == INFER


INFER: Final = frozenset({Scope.INFER})
MANAGE: Final = frozenset({Scope.MANAGE})
READ: Final = frozenset({Scope.READ, Scope.MANAGE})
ANY: Final = frozenset(Scope)
_OWN: Final = INFER | MANAGE  # the id of an answer is known to who got it, and takes no tokens


def _rows(scopes: frozenset[Scope], *calls: str, all_models: bool = False) -> Iterator[Row]:
    for call in calls:
        method, path = call.split(" ")
        yield Row(method, path, scopes, all_models)


ROWS: Final[tuple[Row, ...]] = (
    *_rows(INFER, *(f"POST {path}" for path in SERVED), "GET /lora-adapters"),
    *_rows(_OWN, "POST /v1/responses/{response_id}/cancel", "POST /responses/{response_id}/cancel"),
    *_rows(ANY, "GET /v1/models", "GET /v1/models/{model:path}", "GET /models"),
    *_rows(READ, "GET /props", "GET /slots", "GET /running", "GET /models/sse"),
    *_rows(READ, "GET /api/v1/status", "GET /api/v1/models", "GET /api/v1/devices", "GET /api/v1/toolcalls"),
    *_rows(READ, "GET /api/v1/requests", "GET /api/v1/events", "GET /api/v1/logs", "GET /api/v1/logs/level"),
    *_rows(READ, "GET /api/v1/memory", "GET /api/v1/engines", "GET /api/v1/cluster/nodes"),
    *_rows(READ, "GET /api/v1/disk", "GET /metrics", all_models=True),
    *_rows(READ, "GET /api/v1/history", "GET /api/v1/history/summary", "GET /api/v1/history/loads", all_models=True),
    *_rows(READ, "GET /api/v1/history/export", "GET /api/v1/history/{id}", all_models=True),
    *_rows(READ, "GET /api/v1/workers"),
    *_rows(READ, "GET /api/v1/cluster", all_models=True),
    *_rows(MANAGE, "POST /api/v1/workers/invitations", "DELETE /api/v1/workers/{name}"),
    *_rows(READ, "GET /api/v1/cluster/config/history", all_models=True),
    *_rows(MANAGE, "POST /api/v1/cluster/invitations", "POST /api/v1/cluster/leave", "POST /api/v1/cluster/plan"),
    *_rows(MANAGE, "POST /api/v1/cluster/config", "POST /api/v1/cluster/config/check"),
    *_rows(MANAGE, "POST /api/v1/cluster/config/revert", "GET /api/v1/cluster/config"),
    *_rows(MANAGE, "POST /api/v1/cluster/nodes/{name}/drain", "DELETE /api/v1/cluster/nodes/{name}"),
    *_rows(MANAGE, "DELETE /api/v1/history"),
    *_rows(MANAGE, "GET /api/v1/captures", "GET /api/v1/captures/export", "GET /api/v1/captures/{id}"),
    *_rows(MANAGE, "DELETE /api/v1/captures", "DELETE /api/v1/captures/{id}", "POST /api/v1/captures/{id}/replay"),
    *_rows(MANAGE, "POST /slots/{slot}", "POST /lora-adapters"),
    *_rows(MANAGE, "POST /api/v1/plan", "POST /api/v1/estimate"),  # they tell which files there are
    *_rows(MANAGE, "POST /api/v1/models/load", "POST /api/v1/models/unload", "POST /api/v1/models/forget"),
    *_rows(MANAGE, "POST /api/v1/models/pin", "POST /api/v1/models/unpin", "POST /api/v1/models/verify"),
    *_rows(MANAGE, "POST /api/v1/models", "DELETE /api/v1/models", "DELETE /api/v1/requests/{id}"),
    *_rows(MANAGE, "POST /api/v1/config/reload", "POST /api/v1/logs/level"),
    *_rows(MANAGE, "POST /api/v1/restart", "POST /api/v1/shutdown"),
    *_rows(MANAGE, "GET /api/v1/config", "POST /api/v1/engines", "POST /api/v1/engines/use"),
    *_rows(MANAGE, "GET /api/v1/keys", "POST /api/v1/keys"),
    *_rows(MANAGE, "DELETE /api/v1/keys/{name}", "POST /api/v1/keys/{name}/rotate"),
    *_rows(MANAGE, "POST /models", "DELETE /models", "POST /models/load", "POST /models/unload"),
    *_rows(MANAGE, "GET /unload", "POST /api/models/unload", "POST /api/models/unload/{model:path}"),
    *_rows(ANY, "GET /api/version", "GET /api/tags", "GET /api/ps", "POST /api/show"),
    *_rows(ANY, "GET /api/v0/models", "GET /api/v0/models/{model:path}"),
    *_rows(MANAGE, "POST /api/pull", "DELETE /api/delete", "POST /api/copy", all_models=True),
    *_rows(MANAGE, "POST /api/create", "POST /api/push", "GET /api/blobs/{digest}", "POST /api/blobs/{digest}"),
    *_rows(READ, "GET /ready", all_models=True),
    *_rows(ANY, "GET /", "GET /health", "GET /openapi.json", "GET /docs"),
    *_rows(ANY, "GET /docs/start.js", "GET /docs/viewer.js", "GET /docs/viewer.css"),
    *_rows(ANY, "GET /ui", "GET /ui/{name}"),
)
"""Every path of the daemon but those below UPSTREAM."""

BELOW: Final = Row("*", UPSTREAM, ANY)
"""All below UPSTREAM: `needed_of_engine` says what the path of the engine needs, once it is known."""

_HIDDEN: Final = Row("*", "*", MANAGE)
LOOKS: Final = frozenset({"/health", "/v1/health", "/metrics", "/slots", "/props", "/models", "/v1/models"})
"""Paths of an engine whose `GET` only looks at it: it neither loads the model nor keeps it."""

_USES: Final = frozenset({
    ("GET", "/lora-adapters"),  # it loads the model
})


def needed(method: str, path: str) -> Row:
    """Return the rule of a request to the daemon; a slash at the path's end does not count."""
    if path.startswith(UPSTREAM):
        return BELOW
    method = "GET" if method == "HEAD" else method
    found = _WHOLE.get((method, path.rstrip("/") or "/"))
    if found is not None:
        return found
    return next((row for start, row in _BEGINNINGS if row.method == method and path.startswith(start)), _HIDDEN)


def needed_of_engine(method: str, path: str) -> Row:
    """Return the rule of a request to an engine, below UPSTREAM; `path`: decoded, as the engine reads it.

    What only looks at an engine needs `read`, what generates `infer`, anything else `manage`.
    """
    method = "GET" if method == "HEAD" else method
    if (method, path) in _USES or (method == "POST" and route_of(path) is not None):
        return Row(method, path, INFER)
    return Row(method, path, READ if method == "GET" and path in LOOKS else MANAGE)


def _whole(rows: Iterable[Row]) -> Mapping[tuple[str, str], Row]:
    return {(row.method, row.path): row for row in rows if "{" not in row.path}


_WHOLE: Final = _whole(ROWS)
_BEGINNINGS: Final = tuple((row.path.partition("{")[0], row) for row in ROWS if "{" in row.path)
