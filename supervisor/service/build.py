"""Builds what plans engines: the same objects for the daemon and for a plan without one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from supervisor.config import Settings
from supervisor.config.current import Current
from supervisor.core.devices import Machine
from supervisor.core.devices.engine_list import Listed
from supervisor.core.models.registry import Registry
from supervisor.core.schedule import ModelPolicy
from supervisor.engines.kind import Ground, Planning
from supervisor.engines.kinds import Parts as ByKind
from supervisor.engines.kinds import plannings
from supervisor.errors import StoreUnusable
from supervisor.files.header_cache import HeaderCache
from supervisor.hub.access import HubChoices, hub_access
from supervisor.llamacpp.program import Program
from supervisor.models.configured import configured_models
from supervisor.models.fetch import Fetcher, hub_models
from supervisor.planning.learning import Learning
from supervisor.planning.lookout import Look, Lookout, Rules
from supervisor.planning.speeds import Foreteller
from supervisor.pool.living import NOBODY, Living
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.service.catalogue import Catalogue
from supervisor.service.gguf import GgufPlanning
from supervisor.service.launcher import Commands
from supervisor.service.plans import Answered, Plans, nothing_answered
from supervisor.service.reading import Reading
from supervisor.service.resolve import Resolver
from supervisor.service.variants import Variants
from supervisor.store import Database
from supervisor.system.cores import physical_cores
from supervisor.system.paths import Places

PolicyOf: TypeAlias = Callable[[str], ModelPolicy]


@dataclass(frozen=True)
class Site:
    """A machine to plan for.

    Attributes:
        look: looks at it, given the `llama-server` in use.
        cores: its physical ones; None: unknown.
    """

    look: Callable[[Program], Look]
    cores: int | None


@dataclass(frozen=True)
class Parts:
    """What knows models and the machine; nothing here starts an engine."""

    registry: Registry
    program: Program
    fetcher: Fetcher
    lookout: Lookout
    variants: Variants
    kinds: ByKind[Planning]
    commands: Commands

    def resolver(self, living: Living) -> Resolver:
        """Build the resolver that finds the models that people mean, beside these engines."""
        return Resolver(self.registry, self.fetcher.hub, self.variants, living)

    def plans(
        self, resolver: Resolver, living: Living, policy_of: PolicyOf, answered: Answered = nothing_answered
    ) -> Plans:
        """Build the plans beside these engines."""
        return Plans(
            resolver=resolver,
            kinds=self.kinds,
            lookout=self.lookout,
            living=living,
            policy_of=policy_of,
            answered=answered,
        )


def parts(
    current: Current,
    where: Places,
    env: Mapping[str, str],
    learning: Learning,
    site: Site,
    on_change: Callable[[], None] = lambda: None,
) -> Parts:
    """The objects, by the settings in force.

    Args:
        site: the machine that is planned for.
        on_change: called when there is something new to tell of a download.
    """
    program = Program(where, env, current.view(lambda settings: settings.engine.path))
    headers = HeaderCache(where.cache / "headers")
    access = hub_access(env, HubChoices(**current.settings.hub.model_dump()))
    fetcher = Fetcher(hub_models(access, where, headers, on_change), headers, on_change)
    lookout = Lookout(site.look(program), current.view(_rules))
    registry = configured_models(current.settings)
    reading = Reading(fetcher, program, learning, headers, where.cache)
    commands, foreteller = Commands(program, env, site.cores), Foreteller(learning.database, site.cores)
    variants = Variants(fetcher.hub, reading, lookout, foreteller)
    catalogue = Catalogue(registry, program, fetcher, variants, reading)
    gguf = GgufPlanning(catalogue, program, commands, foreteller)
    return Parts(
        registry=registry,
        program=program,
        fetcher=fetcher,
        lookout=lookout,
        variants=variants,
        kinds=plannings(Ground(learning, time.time, gguf, fetcher)),
        commands=commands,
    )


@contextlib.contextmanager
def without_daemon(
    settings: Settings, where: Places, env: Mapping[str, str], machine: Machine | None = None
) -> Iterator[Parts]:
    """For somebody who plans and starts nothing. Of a `machine` nothing was learned; None: this one."""
    current = Current(settings)
    database = _remembered(where) if machine is None else Database.empty()
    with contextlib.closing(Learning(database, time.time)) as learning:
        site = here(current, Prober(Surroundings(env))) if machine is None else _elsewhere(machine)
        built = parts(current, where, env, learning, site)
        with contextlib.closing(built.fetcher.hub):
            yield built


def plans_alone(built: Parts, living: Living = NOBODY) -> Plans:
    """Build the plans of a program that pins no models."""
    return built.plans(built.resolver(living), living, built.registry.policy_of)


def here(current: Current, prober: Prober, joined: Callable[[Program], Sequence[Listed]] = lambda _: ()) -> Site:
    """This machine, looked at with the workers that are configured now, and those that have joined."""

    def look(program: Program) -> Look:
        return lambda again, ours: prober.machine(
            program.path(), current.settings.devices.rpc, joined(program), again=again, ours=ours
        )

    return Site(look, physical_cores())


def _elsewhere(machine: Machine) -> Site:
    return Site(lambda program: lambda again, ours: machine, None)


def _rules(settings: Settings) -> Rules:
    return Rules(settings.policy(), settings.devices.reserves())


def _remembered(where: Places) -> Database:
    """Open what daemons learned here; an empty store if that cannot be read."""
    try:
        return Database.read(where.database)
    except StoreUnusable:
        return Database.empty()
