"""Every route that the program serves through its framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import httpx
from fastapi import APIRouter
from starlette.routing import BaseRoute, Route

from supervisor.api.app import framework
from supervisor.core.models.registry import ModelEntry, Source
from supervisor.core.routes import ASKED
from supervisor.engines.kinds import service_of


def served_routes() -> list[Route]:
    """The framework's routes, those of its routers too. Fails on a kind of route that is not known here."""
    return list(_flat(framework(cast(Any, None)).routes))


def code_of(answer: httpx.Response) -> str:
    """The code of an error, in the form of whichever API."""
    said = answer.json()
    error = said["error"]
    return str(said["code"] if isinstance(error, str) else error["code"])


def asked_paths() -> list[str]:
    """The paths whose model stands in the query."""
    return [row.path.format(slot=0) for row in ASKED]


def _flat(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    for route in routes:
        included = getattr(route, "original_router", None)
        if isinstance(included, APIRouter):
            yield from _flat(included.routes)
        else:
            assert isinstance(route, Route), route
            yield route


OF_LLAMA = service_of(ModelEntry("any", Source.DEMO, None)).apis
"""The paths that llama-server answers; the others are those of other engines (tests/api/test_commands.py)."""


def wanted_alone(path: str) -> int:
    """The status that a daemon in no cluster answers a GET with; `ps` asks for the nodes wherever it is."""
    return 409 if path.startswith("/api/v1/cluster") and path != "/api/v1/cluster/nodes" else 200
