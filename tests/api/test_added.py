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
from supervisor.errors import HubUnreachable, InvalidRequest, ModelNotFound
from supervisor.planning.planner import Known, Planner
from supervisor.pool.pool import Pool
from supervisor.service.launcher import EngineMaker
from supervisor.service.reload import Reloader
from supervisor.service.resolve import Asked
from supervisor.service.trials import Trials
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
    fetcher = SimpleNamespace(hub=SimpleNamespace(access=SimpleNamespace(env={})))
    service.maker = cast(EngineMaker, SimpleNamespace(registry=registry, fetcher=fetcher, forget=lambda model: None))
    service.trials = Trials(registry, pool)
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


async def _refuse(*_: object) -> Known:
    raise HubUnreachable("nobody answers")


def test_nothing_is_kept_of_what_was_to_be_said_of_a_load_that_is_refused(tmp_path: Path, talker: Path) -> None:
    """Clients may ask for models without end; each under another name."""
    registry = Registry(added(f"m{number}") for number in range(MOST_ADDED))

    async def go() -> None:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            service = service_with(pool, registry)
            service.newcomers.is_loading = lambda model: True  # type: ignore[method-assign]  # no load is under way here
            with pytest.raises(InvalidRequest, match="all in use"):
                await service.ask_load(Asked(str(talker)))
            assert service.remarks == {}

    asyncio.run(go())


def test_what_is_found_out_meanwhile_is_said_of_a_model_that_is_still_there(tmp_path: Path) -> None:
    async def go() -> None:
        async with PoolBench("none", tmp_path / "none.gguf", tmp_path).pool() as pool:
            service = service_with(pool, Registry([added("here")]))
            service.maker.glance = _refuse  # type: ignore[method-assign, assignment]  # a hub that is out of reach
            service.remarks = {name: {"note": "n", "variants": []} for name in ("here", "gone")}
            for name in ("here", "gone"):
                await service._warn_if_it_can_be_read(added(name))
            assert service.remarks == {"here": {"note": "n", "variants": []}}

    asyncio.run(go())
