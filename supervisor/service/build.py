"""Builds what plans and starts engines: the same objects for the daemon and for a plan without one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from supervisor.config import Settings
from supervisor.core.devices import Holding, Machine
from supervisor.engines.engine import EngineLimits
from supervisor.engines.slots import SlotStore
from supervisor.errors import StoreUnusable
from supervisor.hub.access import HubChoices, hub_access
from supervisor.models.fetch import Fetcher, fetcher_of
from supervisor.models.targets import configured_models
from supervisor.planning.learning import Learning
from supervisor.planning.planner import Look, Planner, Rules
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.service.launcher import EngineMaker
from supervisor.service.resolve import with_variant
from supervisor.store import Database
from supervisor.system.child import StopGrace
from supervisor.system.paths import Places


def engine_maker(settings: Settings, where: Places, env: Mapping[str, str], learning: Learning) -> EngineMaker:
    """What makes engines by a configuration."""
    return EngineMaker(
        registry=configured_models(settings),
        places=where,
        env=env,
        engine_path=settings.engine.path,
        limits=_limits(settings),
        learning=learning,
        slots=SlotStore(where.cache / "kv", settings.kv_store.max_mib << 20),
        fetcher=fetcher(settings, where, env),
    )


def fetcher(settings: Settings, where: Places, env: Mapping[str, str]) -> Fetcher:
    """What finds and fetches models of the hub by a configuration."""
    access = hub_access(env, HubChoices(**settings.hub.model_dump()))
    return fetcher_of(access, where)


def planner_of(
    settings: Settings,
    maker: EngineMaker,
    holdings: Callable[[], Sequence[Holding]],
    machine: Look,
) -> Planner:
    """What decides where engines go; `machine` as for `Planner`."""
    return Planner(maker.registry, maker.know, machine, _rules(settings), holdings)


def adopt(settings: Settings, maker: EngineMaker, planner: Planner) -> None:
    """Have the two work by other settings from now on; the registry of models is not touched."""
    maker.engine_path = settings.engine.path
    maker.limits = _limits(settings)
    planner.adopt(_rules(settings))


@contextlib.contextmanager
def without_daemon(
    settings: Settings, where: Places, env: Mapping[str, str], machine: Machine | None = None
) -> Iterator[tuple[EngineMaker, Planner]]:
    """The two for somebody who plans and starts nothing. Of a `machine` nothing was learned; None: this one."""
    database = _remembered(where) if machine is None else Database.empty()
    with (
        contextlib.closing(Learning(database, time.time)) as learning,
        contextlib.closing(engine_maker(settings, where, env, learning)) as maker,
    ):
        if machine is None:
            planner = planner_of(settings, maker, tuple, look(lambda: settings, maker, Prober(Surroundings(env))))
        else:
            maker = replace(maker, cores=None)
            planner = planner_of(settings, maker, tuple, lambda again, ours: machine)
        maker.find_variant = partial(with_variant, maker, planner, tuple)
        yield maker, planner


def look(settings: Callable[[], Settings], maker: EngineMaker, prober: Prober) -> Look:
    """Looks at this machine with the engine in use and the workers that are configured now; as for `Planner`."""
    return lambda again, ours: prober.machine(maker.binary_path(), settings().devices.rpc, again=again, ours=ours)


def _limits(settings: Settings) -> EngineLimits:
    third = settings.engine.stop_timeout / 3  # asked, SIGTERM, SIGTERM again: then SIGKILL
    return EngineLimits(stall_s=settings.engine.stall_timeout, grace=StopGrace(ask_s=third, term_s=third))


def _rules(settings: Settings) -> Rules:
    return Rules(settings.policy(), settings.devices.reserves())


def _remembered(where: Places) -> Database:
    """What daemons learned here; nothing where that cannot be read."""
    try:
        return Database.read(where.database)
    except StoreUnusable:
        return Database.empty()
