"""The one place that builds the daemon's objects and hands them in: from the ground up, each from those before it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from supervisor.api.app import Proxied, create_app
from supervisor.api.errors import render_error
from supervisor.api.feed import Feed
from supervisor.api.guard import Guard
from supervisor.api.services import Services
from supervisor.config import Settings
from supervisor.config.current import Current
from supervisor.core.cluster.views import View
from supervisor.core.requests.captured import CaptureRules
from supervisor.core.schedule import Pins, Scheduler
from supervisor.daemon.door import Door, bodies_of, fetch_rules
from supervisor.daemon.edges import Edges, Listener
from supervisor.daemon.peers import PeerDoor, Seat, strangers_limits
from supervisor.daemon.server import Stop
from supervisor.daemon.takeover.asked import Takeover
from supervisor.engines.engine import EngineLimits
from supervisor.engines.kind import Launching, Yard
from supervisor.engines.kinds import Parts as ByKind
from supervisor.engines.kinds import launchings
from supervisor.engines.llama.slots import SlotStore
from supervisor.engines.log import OutputLog
from supervisor.errors import ExtraMissing
from supervisor.llamacpp.install import InstallRequest, install
from supervisor.llamacpp.progress import Report
from supervisor.llamacpp.store import EngineStore, Manifest
from supervisor.planning.learning import Learning
from supervisor.planning.planner import Planner
from supervisor.pool.changes import Changes
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool, PoolLimits
from supervisor.probe.machine import Prober
from supervisor.proxy.asked import asked_endpoint
from supervisor.proxy.capturing import Capturing
from supervisor.proxy.connections import Connections
from supervisor.proxy.counts import CallCounts
from supervisor.proxy.media import Media
from supervisor.proxy.naming import Naming
from supervisor.proxy.relay import Relaying, relay_endpoints
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting
from supervisor.service.about import About, Identity
from supervisor.service.added import Added, Forgetting
from supervisor.service.autoload import Autoloads
from supervisor.service.build import Parts, here, parts
from supervisor.service.captures import Captures
from supervisor.service.clusters import NoCluster
from supervisor.service.configuration import Configuration
from supervisor.service.disk import Disk
from supervisor.service.enginelogs import EngineLogs
from supervisor.service.enginemetrics import EngineMetrics
from supervisor.service.engines import Installed
from supervisor.service.gguf import GgufLaunching
from supervisor.service.history import History
from supervisor.service.keeping import Keeping
from supervisor.service.keys import Keys
from supervisor.service.launcher import Launcher
from supervisor.service.listed import Listed
from supervisor.service.loads import Loads
from supervisor.service.logs import Logs
from supervisor.service.looks import Looks
from supervisor.service.memory import Memory
from supervisor.service.metrics import Looked, Metrics
from supervisor.service.ownview import OwnView
from supervisor.service.pinning import Pinning
from supervisor.service.plans import Plans
from supervisor.service.pulls import Pulls
from supervisor.service.readiness import Readiness
from supervisor.service.records import Records
from supervisor.service.reload import Reloader, Source
from supervisor.service.remarks import Remarks
from supervisor.service.requests import Requests
from supervisor.service.resolve import Asked
from supervisor.service.restore import Remembered
from supervisor.service.smoke import SmokeTest
from supervisor.service.statuses import Statuses
from supervisor.service.tallies import Tallies
from supervisor.service.tracing import Tracing
from supervisor.service.trials import Trials
from supervisor.service.workers import Ground, Joined, Workers
from supervisor.system.child import StopGrace
from supervisor.system.logs import LogControl
from supervisor.system.paths import Places
from supervisor.system.proof import new_secret
from supervisor.system.threads import Threads
from supervisor.system.wakefulness import Epoch, lifetime

if TYPE_CHECKING:
    from supervisor.cluster.cluster import Cluster


@dataclass(frozen=True)
class World:
    """The surroundings the daemon was started in: its settings, its environment, its logs, the way in, its threads."""

    current: Current
    source: Source
    places: Places
    env: Mapping[str, str]
    prober: Prober
    learning: Learning
    own_log: OutputLog
    log_control: LogControl
    door: Door
    keys: Keys
    history: History
    tracing: Tracing | None
    captures: Captures
    threads: Threads
    secret: str = ""
    seat: Seat | None = None


@dataclass(frozen=True)
class Engines:
    """Everything below the pool. `listeners` are told what happens to engines. `workers` run once they are started."""

    parts: Parts
    planner: Planner
    pins: Pins
    remembered: Remembered
    logs: EngineLogs
    slots: SlotStore
    tallies: Tallies
    records: Records
    pool: Pool
    launchings: ByKind[Launching]
    listeners: list[Listener]
    workers: Workers


@dataclass(frozen=True)
class Daemon:
    """The running parts of the daemon."""

    engines: Engines
    identity: Identity
    reloader: Reloader
    feed: Feed
    readiness: Readiness
    guard: Guard
    connections: Connections
    takeover: Takeover
    cluster: Cluster | None
    peers: PeerDoor | None


def build_engines(world: World) -> Engines:
    """The pool, and what it stands on. The pool runs once it is entered."""
    current, learning = world.current, world.learning
    settings = current.settings
    changes = Changes()
    joined = Joined()
    site = here(current, world.prober, joined.devices)
    built = parts(current, world.places, world.env, learning, site, changes.tell)
    planner = Planner(built.registry, built.kinds, built.lookout)
    pins = Pins(built.registry.policy_of)
    scheduler = Scheduler(planner.plan, pins, settings.limits(), current.view(Settings.limits))
    logs = EngineLogs(world.places.engine_log)
    slots = SlotStore(world.places.cache / "kv", settings.kv_store.max_mib << 20)
    launcher = Launcher(
        program=built.program,
        commands=built.commands,
        places=world.places,
        env=world.env,
        limits=current.view(_engine_limits),
        learning=learning,
        logs=logs,
        slots=slots,
    )
    remembered = Remembered(learning, built.registry)
    share = settings.memory_watch.share
    tallies = Tallies()
    records = Records(world.history, tallies, time.time, None if world.tracing is None else world.tracing.engine)
    yard = Yard(
        memory=learning,
        clock=time.time,
        process_bytes=learning.process_bytes,
        env=world.env,
        records=world.places.pid_records,
        runtime=world.places.runtime,
        limits=current.view(_engine_limits),
        log=logs.of,
        gguf=GgufLaunching(launcher),
    )
    makers, listeners = launchings(yard), list[Listener]()
    edges = Edges(built.registry, planner, built.lookout, makers, remembered, share, records, listeners)
    pool = Pool(scheduler, edges.of_pool(), PoolLimits(growth=share or 0.0), changes)
    ground = Ground(built.program, built.lookout, pool)
    workers = Workers(world.places, world.env, settings.workers.address(), joined, ground, changes.tell)
    return Engines(built, planner, pins, remembered, logs, slots, tallies, records, pool, makers, listeners, workers)


@contextmanager
def build_daemon(world: World, engines: Engines, stop: Stop) -> Iterator[Daemon]:
    """Build the parts that serve clients, on a pool that runs."""
    current, door, built, pool, pins = world.current, world.door, engines.parts, engines.pool, engines.pins
    registry, fetcher, program, kinds = built.registry, built.fetcher, built.program, built.kinds
    identity, takeover = Identity(door.urls[0], world.secret or new_secret(), time.time()), Takeover()
    inflight, to_epoch = Inflight(lifetime, engines.logs.reached), Epoch()
    calls = ToolCalls(current.view(lambda settings: settings.server.tool_calls))
    connections = Connections(current.view(door.limits), render_error, time.monotonic)
    reloader = Reloader(current, registry, kinds, (program, pool), world.source)
    readiness = Readiness(registry, pool, stop.asked.is_set)
    remarks = Remarks()
    statuses = Statuses(registry, pool, engines.planner, pins, remarks, fetcher.progress, to_epoch)
    requests = Requests(inflight, to_epoch)
    resolver = built.resolver(pool)
    plans = built.plans(resolver, pool, pins, world.history.answered)
    forget = Forgetting(registry, engines.planner, pool, pins, remarks, engines.logs, built.variants, calls)
    added = Added(registry, pool, statuses, reloader.configures, forget)
    trials = Trials(registry, pool)
    pulls = Pulls(fetcher, registry, pool, resolver, built.variants)
    disk = Disk(fetcher.hub, registry, pool, pulls)
    autoload = current.view(lambda settings: settings.server.autoload)
    loads = Loads(
        registry=registry,
        pool=pool,
        resolver=resolver,
        plans=plans,
        kinds=kinds,
        planner=engines.planner,
        remarks=remarks,
        trials=trials,
        added=added,
        statuses=statuses,
    )
    memory = Memory(built.lookout, pool)
    look = OwnView(statuses, memory, lambda: len(inflight)).look
    cluster = _cluster(world, engines, inflight, plans, look, reloader)
    looked = Looked(
        statuses=statuses.all,
        machine=lambda: built.lookout.machine,
        calls=lambda: calls.counts,
        inflight=lambda: len(inflight),
        dropped=lambda: world.history.dropped,
        cluster=lambda: None if cluster is None else cluster.figures(),
    )
    metrics = Metrics(engines.tallies, looked, EngineMetrics(pool.ready_clients))
    with pool.watch() as changed, inflight.watch(changed), closing(metrics):
        metrics.start()
        feed = Feed(pool, inflight, Looks(statuses.all, requests.all, changed))
        services = Services(
            identity=identity,
            about=About(identity, program, reloader, statuses, stop.asked.is_set),
            statuses=statuses,
            loads=loads,
            added=added,
            pinning=Pinning(registry, pool, pins, statuses),
            listed=Listed(registry, engines.planner, built.kinds, disk, pool, autoload, identity.started_at),
            plans=plans,
            memory=memory,
            configuration=Configuration(reloader, registry, world.env),
            installed=_installed(world),
            disk=disk,
            pulls=pulls,
            requests=requests,
            logs=Logs(world.own_log, engines.logs, registry),
            log_control=world.log_control,
            reloader=reloader,
            call_counts=CallCounts(calls.counts),
            feed=feed,
            readiness=readiness,
            keys=world.keys,
            history=world.history,
            captures=world.captures,
            metrics=metrics,
            workers=engines.workers,
            cluster=cluster or NoCluster(),
            shut_down=stop.ask,
            take_over=takeover,
        )
        autoloads = Autoloads(autoload, registry, fetcher.hub, loads)
        keeping = Keeping(registry, pool, pins, loads)
        relaying = _relaying(world, engines, (inflight, calls), autoloads, keeping)
        if cluster is not None:
            relaying = replace(relaying, elsewhere=cluster.forwarding)
        guard = _guarded(services, relaying, world)
        peers = None if cluster is None else _peer_door(world, cluster, guard)
        yield Daemon(engines, identity, reloader, feed, readiness, guard, connections, takeover, cluster, peers)


def _cluster(
    world: World,
    engines: Engines,
    inflight: Inflight,
    plans: Plans,
    look: Callable[[], Awaitable[View]],
    reloader: Reloader,
) -> Cluster | None:
    """This node's part in a cluster; nothing of it is imported where there is none."""
    if world.seat is None:
        return None

    async def plan(model: str) -> Mapping[str, object]:
        return await plans.plan(Asked(model))

    try:
        made = importlib.import_module("supervisor.cluster.cluster")
    except ImportError as error:
        raise ExtraMissing(
            f"This host is in a cluster, which needs the extra [cluster] ({error}). Install it: "
            "`pip install 'llama-supervisor[cluster]'`."
        ) from None
    built, hub = engines.parts, engines.parts.fetcher.hub
    undecided = world.current.view(lambda settings: settings.cluster.undecided == "local")
    ground = made.Ground(built.registry, engines.pool, built.lookout, inflight, plan, look, reloader, hub, undecided)
    cluster = cast("Cluster", made.cluster_of(world.seat.kept, ground, world.env, world.places.pid_records))
    engines.listeners.append(cluster.heard)
    reloader.listeners.append(cluster.reloaded)
    return cluster


def _peer_door(world: World, cluster: Cluster, guard: Guard) -> PeerDoor:
    assert world.seat is not None
    doorway = cluster.doorway(guard.inside, render_error)
    limits = world.current.view(world.door.limits)
    connections = Connections(limits, render_error, time.monotonic)
    strangers = Connections(lambda: strangers_limits(limits()), render_error, time.monotonic)
    seat = world.seat
    return PeerDoor(seat.listener, seat.kept.answering(), doorway, connections, strangers, doorway.is_member)


def _installed(world: World) -> Installed:
    trial = SmokeTest(world.places, world.env)

    def make(wanted: InstallRequest, report: Report) -> Awaitable[Manifest]:
        return install(world.places, world.env, wanted, smoke_test=trial, progress=report)

    return Installed(EngineStore(world.places.engines), make)


def _relaying(
    world: World, engines: Engines, known: tuple[Inflight, ToolCalls], autoloads: Autoloads, keeping: Keeping
) -> Relaying:
    current, pool, (inflight, calls) = world.current, engines.pool, known
    downloads = engines.parts.fetcher.progress
    waiting = Waiting(
        pool,
        inflight,
        current.view(lambda settings: settings.server.keep_alive),
        lambda model: downloads[model].share if model in downloads else None,
    )
    bodies = bodies_of(current.settings.server)
    return Relaying(
        pool=pool,
        registry=engines.parts.registry,
        inflight=inflight,
        bodies=bodies,
        render_error=render_error,
        tool_calls=calls,
        waiting=waiting,
        naming=Naming(
            engines.parts.registry,
            pool.loaded,
            current.view(lambda settings: settings.server.default_model),
            autoloads,
        ),
        media=Media(current.view(fetch_rules)),
        observer=engines.records.request,
        wishing=keeping,
        begins=None if world.tracing is None else world.tracing.begin,
        capturing=Capturing(current.view(_captured), world.captures),
    )


def _guarded(services: Services, relaying: Relaying, world: World) -> Guard:
    current = world.current
    upstream = upstream_endpoint(relaying, current.view(lambda settings: settings.kv_store.max_mib << 20))
    proxied = Proxied(relay_endpoints(relaying), asked_endpoint(relaying, upstream), upstream)
    return create_app(services, proxied, current.view(world.door.rules), services.keys.admit)


def _captured(settings: Settings) -> CaptureRules:
    return settings.capture.rules()


def _engine_limits(settings: Settings) -> EngineLimits:
    third = settings.engine.stop_timeout / 3  # asked, SIGTERM, SIGTERM again: then SIGKILL
    return EngineLimits(stall_s=settings.engine.stall_timeout, grace=StopGrace(ask_s=third, term_s=third))
