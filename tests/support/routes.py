"""Every route that the program serves through its framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from fastapi import APIRouter
from starlette.routing import BaseRoute, Route

from supervisor.api.app import framework


def served_routes() -> list[Route]:
    """The framework's routes, those of its routers too. Fails on a kind of route that is not known here."""
    return list(_flat(framework(cast(Any, None)).routes))


def _flat(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    for route in routes:
        included = getattr(route, "original_router", None)
        if isinstance(included, APIRouter):
            yield from _flat(included.routes)
        else:
            assert isinstance(route, Route), route
            yield route
