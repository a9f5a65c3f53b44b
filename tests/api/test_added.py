"""How many models loads may add: every list tells of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from supervisor.api.service import MOST_ADDED, Service
from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.schedule import ModelPolicy, Pins
from supervisor.errors import InvalidRequest, ModelNotFound
from supervisor.planning.planner import Planner
from supervisor.pool.pool import Pool
from supervisor.service.launcher import EngineMaker
from supervisor.service.reload import Reloader
from tests.api.test_feed import service_of
from tests.shell.pools import PoolBench


def added(name: str) -> ModelEntry:
    return ModelEntry(name, Source.FILE, f"/{name}.gguf")


def in_service(folder: Path, registry: Registry, act: Callable[[Service], None]) -> None:
    """`own` is of the configuration; nothing is loaded."""

    async def go() -> None:
        async with PoolBench("none", folder / "none.gguf", folder).pool() as pool:
            act(service_with(pool, registry))

    asyncio.run(go())


def service_with(pool: Pool, registry: Registry) -> Service:
    service = service_of(pool)
    service.maker = cast(EngineMaker, SimpleNamespace(registry=registry, forget=lambda model: None))
    service.reloader = cast(Reloader, SimpleNamespace(configures=lambda model: model == "own"))
    service.planner = cast(Planner, SimpleNamespace(forget=lambda model: None))
    service.pins = Pins(lambda model: ModelPolicy())
    return service


def test_the_oldest_model_that_a_load_added_goes_for_one_too_many(tmp_path: Path) -> None:
    registry = Registry([added("own"), *(added(f"m{number}") for number in range(MOST_ADDED - 1))])
    in_service(tmp_path, registry, lambda service: service.make_place())
    assert "m0" in registry
    registry.add(added("last"))
    in_service(tmp_path, registry, lambda service: service.make_place())
    assert "own" in registry
    assert "m1" in registry
    with pytest.raises(ModelNotFound, match="any more: loads have added"):
        registry.find("m0")


def test_one_that_is_being_loaded_stays(tmp_path: Path) -> None:
    registry = Registry([added("own"), *(added(f"m{number}") for number in range(MOST_ADDED))])

    def act(service: Service) -> None:
        service.newcomers.is_loading = lambda model: model in {"m0", "m1"}  # type: ignore[method-assign]  # no load is under way here
        service.make_place()
        service.newcomers.is_loading = lambda model: True  # type: ignore[method-assign]  # no load is under way here
        registry.add(added("last"))
        with pytest.raises(InvalidRequest, match="all in use"):
            service.make_place()

    in_service(tmp_path, registry, act)
    assert {"m0", "m1"} <= {entry.id for entry in registry}
    assert "m2" not in registry
