"""Builds what plans and starts engines: the same objects for the daemon and for a plan without one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from supervisor.child import StopGrace
from supervisor.config import Settings
from supervisor.core.devices import Holding, Machine
from supervisor.engine import EngineLimits
from supervisor.errors import StoreUnusable
from supervisor.learning import Learning
from supervisor.paths import Places
from supervisor.planning import Planner, Rules
from supervisor.prepare import EngineMaker
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.store import Database
from supervisor.targets import configured_models


def engine_maker(settings: Settings, where: Places, env: Mapping[str, str], learning: Learning) -> EngineMaker:
    """What makes engines by a configuration."""
    third = settings.engine.stop_timeout / 3  # asked, SIGTERM, SIGTERM again: then SIGKILL
    return EngineMaker(
        registry=configured_models(settings),
        places=where,
        env=env,
        engine_path=settings.engine.path,
        limits=EngineLimits(stall_s=settings.engine.stall_timeout, grace=StopGrace(ask_s=third, term_s=third)),
        learning=learning,
    )


def planner_of(
    settings: Settings,
    maker: EngineMaker,
    holdings: Callable[[], Sequence[Holding]],
    machine: Callable[[bool], Machine] | None = None,
) -> Planner:
    """What decides where engines go; `machine` as for `Planner`, None: this one is probed."""
    rules = Rules(settings.policy(), settings.devices.reserves())
    return Planner(maker.registry, maker.know, machine or _prober(settings, maker), rules, holdings)


@contextlib.contextmanager
def without_daemon(
    settings: Settings, where: Places, env: Mapping[str, str], machine: Machine | None = None
) -> Iterator[tuple[EngineMaker, Planner]]:
    """The two for somebody who plans and starts nothing. Of a `machine` nothing was learned; None: this one."""
    database = _remembered(where) if machine is None else Database.empty()
    with contextlib.closing(Learning(database, time.time)) as learning:
        maker = engine_maker(settings, where, env, learning)
        if machine is None:
            yield maker, planner_of(settings, maker, tuple)
        else:
            yield replace(maker, cores=None), planner_of(settings, maker, tuple, lambda _: machine)


def _prober(settings: Settings, maker: EngineMaker) -> Callable[[bool], Machine]:
    prober = Prober(Surroundings(maker.env))
    return lambda again: prober.machine(maker.binary_path(), settings.devices.rpc, again=again)


def _remembered(where: Places) -> Database:
    """What daemons learned here; nothing where that cannot be read."""
    try:
        return Database.read(where.database)
    except StoreUnusable:
        return Database.empty()
