"""Runs the daemon: takes its place, serves, and leaves in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from supervisor.cluster.kept import Membership
from supervisor.config import Settings, find_config
from supervisor.config.current import Current
from supervisor.config.load import Loaded, Start, load
from supervisor.config.settings import ServerSettings
from supervisor.core.takeover.carried import Carried
from supervisor.core.text.loglevel import LogFormat, LogLevel
from supervisor.daemon.build import Daemon, Engines, World, build_daemon, build_engines
from supervisor.daemon.door import Door
from supervisor.daemon.lock import (
    FileShares,
    allow_many_files,
    check_bind,
    daemon_lock,
    endpoint_file,
    file_shares,
    has_terminal,
    listen_on,
)
from supervisor.daemon.peers import kept_of, seat_of, shared_here
from supervisor.daemon.server import Server, Stop, loop_factory
from supervisor.daemon.takeover import signals
from supervisor.daemon.takeover.arrival import carried_to, listeners_of, processes_of
from supervisor.daemon.takeover.handover import Handover
from supervisor.daemon.takeover.trial import TRIAL, told
from supervisor.daemon.tls import Certificates, certificates_of
from supervisor.engines.log import OutputLog
from supervisor.models.configured import with_shared
from supervisor.planning.learning import Learning
from supervisor.planning.lookout import Lookout
from supervisor.pool.pool import Pool
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.service.about import Identity
from supervisor.service.captures import Captures
from supervisor.service.history import History, Kept
from supervisor.service.keys import Keys
from supervisor.service.readiness import Readiness
from supervisor.service.reload import Configured, Reloader, Source
from supervisor.service.tracing import tracing_of
from supervisor.store import Database
from supervisor.store.history import HistoryTable
from supervisor.store.keyfile import KeyFile
from supervisor.system import logs
from supervisor.system.logfile import LogFile
from supervisor.system.owned import keep_newest
from supervisor.system.paths import Places, places
from supervisor.system.proof import new_secret
from supervisor.system.records import end_leftovers
from supervisor.system.servicemanager import ServiceManager
from supervisor.system.threads import Threads
from supervisor.system.wakefulness import watch_for_resume

_log = structlog.get_logger()

_ENGINE_LOGS = 300  # files of engines' logs that stay when a daemon starts


@dataclass(frozen=True)
class DaemonOptions:
    """The daemon's options on the command line; None = the configuration's value."""

    config: str | None = None
    host: str | None = None
    port: int | None = None
    engine: str | None = None
    insecure: bool = False
    log_format: LogFormat | None = None
    log_level: LogLevel | None = None

    def on(self, settings: Settings) -> Settings:
        """Return the settings with the level and the form of the log that are wanted here."""
        wanted = {"log_level": self.log_level, "log_format": self.log_format}
        server = settings.server.model_copy(update={name: value for name, value in wanted.items() if value is not None})
        return settings.model_copy(update={"server": server})

    def over(self, loaded: Loaded) -> Loaded:
        """Return what was loaded with that level, which does not come from the file."""
        said = frozenset({("server", "log_level")} if self.log_level is not None else ())
        return replace(loaded, settings=self.on(loaded.settings), overridden=loaded.overridden | said)


def run_daemon(options: DaemonOptions, env: MutableMapping[str, str] = os.environ) -> int:
    """Run the daemon in the foreground until it is told to stop; returns the exit code."""
    manager = ServiceManager.taken(env)
    on_trial, carried = env.pop(TRIAL, None), carried_to(env)
    where = places(env)
    own_log = OutputLog(None)
    current = Current(options.on(Settings()))  # until the configuration is read, which may have to be logged
    control = logs.LogControl(current.view(_log_settings), LogFile(where.daemon_log))
    logs.configure(None, own_log.write, control)
    configured, shared = _configured(options, env, where), shared_here(where)
    settings = with_shared(configured.loaded, shared).settings
    current.take_over(settings)
    _tell_file(configured)
    kept, shares = _shared(where)
    listening = listeners_of(carried)
    passed = listening.passed or manager.listener()
    server = _reached_at(settings.server, passed)
    check_bind(server, insecure=options.insecure)
    if on_trial is not None:
        sys.stdout.write(told())
        return 0
    addresses = server.addresses()
    with (
        daemon_lock(where, None if carried is None else carried.lock) as lock,
        contextlib.ExitStack() as open_to,
    ):
        first = [] if passed is None else [open_to.enter_context(passed)]
        listeners = first + listen_on(addresses[len(first) :], shares.backlog, open_to, listening.take)
        seat = seat_of(kept, lambda place: listen_on([place], shares.backlog, open_to, listening.take)[0])
        listening.close()
        for ended in end_leftovers(where.pid_records, spared=processes_of(carried)):
            _log.info("leftover_child", **asdict(ended))
        keep_newest(where.engine_logs(), _ENGINE_LOGS)
        keys = Keys(KeyFile(where.key_file), current.view(lambda settings: bool(settings.server.api_keys)))
        prober = Prober(Surroundings(env))
        learning = Learning(Database.open(where.database), time.time, prober.process_bytes)
        history = History(HistoryTable.open(where.history), current.view(_kept), time.time)
        captures = Captures(where.captures, current.view(lambda settings: settings.capture.rules()), time.monotonic)
        tracing = tracing_of(settings.server.tracing.endpoint, env)
        if tracing is not None:
            open_to.callback(tracing.close)
        with (
            contextlib.closing(learning),
            contextlib.closing(history),
            contextlib.closing(captures),
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            source = Source(
                configured,
                partial(_configured_again, options, env, where),
                partial(_check, server, insecure=options.insecure),
                time.time,
                shared,
            )
            door = Door(
                listeners,
                shares,
                [host for host, _ in addresses],
                certificates_of(settings.server),
                ports=[port for _, port in addresses],
                lock=lock,
                passed=passed is not None,
            )
            world = World(
                *(current, source, where, env, prober, learning, own_log, control),
                *(door, keys, history, tracing, captures, Threads()),
                secret=new_secret() if carried is None else carried.secret,
                seat=seat,
            )
            runner.run(_serve(world, build_engines(world), manager, carried))
    return 0


def _shared(where: Places) -> tuple[Membership | None, FileShares]:
    """Return what is kept of a cluster, and how files are shared out: other nodes have a door of their own."""
    kept = kept_of(where)
    return kept, file_shares(allow_many_files(), doors=1 if kept is None else 2)


def _reached_at(server: ServerSettings, passed: socket.socket | None) -> ServerSettings:
    """Return the settings with the address of the socket that was passed, if any: it counts in place of theirs."""
    if passed is None:
        return server
    host, port = passed.getsockname()[:2]
    return server.model_copy(update={"host": host, "port": port})


def _configured_again(options: DaemonOptions, env: Mapping[str, str], where: Places) -> Configured:
    return _tell_file(_configured(options, env, where))


def _tell_file(configured: Configured) -> Configured:
    """Log which file it is: for the first time when the form of the log is known."""
    if configured.path is not None:
        _log.info("config_file", path=str(configured.path))
    return configured


def _check(first: ServerSettings, settings: Settings, *, insecure: bool) -> None:
    """Raise where the daemon could not run with these settings; other addresses count from the next start on."""
    kept = {"host": first.host, "listen": first.listen}
    check_bind(settings.server.model_copy(update=kept), insecure=insecure)


def _configured(options: DaemonOptions, env: Mapping[str, str], where: Places) -> Configured:
    file = find_config(options.config, env, Path.cwd(), where.config)
    start = Start(options.host, options.port, options.engine, options.insecure or options.host is not None)
    loaded = options.over(load(file, env, start))
    return Configured(loaded.settings, file, loaded)


def _kept(settings: Settings) -> Kept:
    return Kept(settings.history.days, settings.history.max_rows)


def _log_settings(settings: Settings) -> logs.LogSettings:
    server = settings.server
    return logs.LogSettings(server.log_level, server.log_max_mib << 20, server.log_files, format=server.log_format)


async def _serve(world: World, engines: Engines, manager: ServiceManager, carried: Carried | None) -> None:
    asyncio.get_running_loop().set_default_executor(world.threads)
    stop, pool = Stop(), engines.pool
    if carried is not None:
        signals.hear(stop.ask)  # until the server does
    async with pool:
        with build_daemon(world, engines, stop) as daemon, _beside(manager.watched()):
            await _run(world, daemon, stop, manager, carried)
    _log.info("daemon_stopped")


async def _run(world: World, daemon: Daemon, stop: Stop, manager: ServiceManager, carried: Carried | None) -> None:
    engines, identity = daemon.engines, daemon.identity
    certificates = world.door.certificates
    backlog = world.door.shares.backlog
    server = Server(stop, daemon.guard, daemon.connections, backlog, certificates, daemon.peers)
    handover = Handover(world, daemon, server, stop, manager)
    await engines.workers.start(None if carried is None else carried.gateway)
    if carried is not None:
        await handover.arrive(carried, await _known_before(engines, restore=True))
    if daemon.cluster is not None:
        daemon.cluster.start(None if carried is None else carried.nats)
    serving = asyncio.create_task(server.serve(sockets=list(world.door.listeners)))
    await _first_loads(world.current.settings, engines, daemon.readiness, again=carried is None)
    shown = partial(_leaf, certificates)
    with endpoint_file(world.places, identity.url, identity.started_at, identity.secret, shown) as tell:
        announce: Callable[[], None] = partial(_announce, world, identity, manager)
        while not (serving.done() or stop.asked.is_set()):
            renewed = None if certificates is None else certificates.watch(tell)
            with _watching(daemon, stop, manager, renewed), _beside(world.keys.keep()):
                announce()  # once its signals are listened to
                announce = manager.reloaded  # after a take-over that has failed
                wishes = [asyncio.ensure_future(one.wait()) for one in (stop.asked, daemon.takeover.asked)]
                await asyncio.wait({serving, *wishes}, return_when=asyncio.FIRST_COMPLETED)
                for wish in wishes:
                    wish.cancel()
            if daemon.takeover.asked.is_set():
                await handover.depart()
        _log.info("daemon_stopping")
        manager.stopping()
        engines.remembered.close()
        await _drain(engines.pool, stop)  # open streams end with their engines, before the server closes
        await handover.close()
        await engines.workers.close()
        if daemon.cluster is not None:
            await daemon.cluster.close()
    daemon.feed.close()  # ends those who listen to events
    engines.logs.close()
    engines.parts.fetcher.hub.close()
    world.own_log.close()  # ends those who follow
    server.leave()
    await serving
    await world.keys.flush()


def _announce(world: World, identity: Identity, manager: ServiceManager) -> None:
    _log.info("daemon_ready", url=identity.url, pid=os.getpid(), **_several(world.door.urls))
    manager.ready(identity.url)
    gc.freeze()  # what is there now stays: collections need not look at it


def _several(urls: list[str]) -> dict[str, list[str]]:
    return {"urls": urls} if len(urls) > 1 else {}


def _leaf(certificates: Certificates | None) -> str | None:
    return None if certificates is None else certificates.leaf


async def _known_before(engines: Engines, *, restore: bool) -> list[str]:
    return await asyncio.to_thread(engines.remembered.begin, restore=restore)


async def _first_loads(settings: Settings, engines: Engines, readiness: Readiness, *, again: bool) -> None:
    """Ask for what was loaded before, if that is wanted, and for what is to be loaded always.

    again: what was loaded before is not loaded now.
    """
    engines.slots.sweep()
    for model in await _known_before(engines, restore=settings.restore) if again else ():
        engines.pool.ask_load(model)
    preloaded = [entry.id for entry in engines.parts.registry if entry.policy.preload]
    for model in preloaded:
        if again or model not in engines.pool.loaded():
            engines.pool.ask_load(model)
    readiness.begin(preloaded)


@contextlib.contextmanager
def _watching(
    daemon: Daemon, stop: Stop, manager: ServiceManager, renewed: Coroutine[object, object, None] | None
) -> Iterator[None]:
    """Within the block, take in a configuration whose file changes, or on SIGHUP, and notice suspensions.

    SIGUSR2 asks for a take-over. renewed: takes in a certificate whose files change.
    """
    loop, reloader, engines = asyncio.get_running_loop(), daemon.reloader, daemon.engines
    resumed = watch_for_resume(partial(_resumed, engines.pool, engines.parts.lookout))
    tasks = {_lasting(one) for one in (reloader.watch(), resumed, renewed) if one is not None}
    terminal = has_terminal()

    def hung_up() -> None:
        if terminal and not has_terminal():
            stop.ask()  # the terminal that we run in was closed
            return
        tasks.add(task := asyncio.ensure_future(_reload(reloader, manager)))
        task.add_done_callback(tasks.discard)

    signals = {signal.SIGHUP: hung_up, signal.SIGUSR2: daemon.takeover.ask} if hasattr(signal, "SIGHUP") else {}
    for one, call in signals.items():
        loop.add_signal_handler(one, call)
    try:
        yield
    finally:
        for one in signals:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_IGN)  # until somebody listens again
        for task in tasks:
            task.cancel()


async def _reload(reloader: Reloader, manager: ServiceManager) -> None:
    with manager.reloading():
        await reloader.reload_quietly()


def _lasting(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
    """Do what lasts as long as the daemon; a bug that ends it sooner is in the log, as nobody waits for it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_tell_of_bug)
    return task


def _tell_of_bug(task: asyncio.Task[None]) -> None:
    bug = None if task.cancelled() else task.exception()
    if bug is not None:
        _log.error("work_ended", exc_info=bug)


@contextlib.contextmanager
def _beside(work: Coroutine[object, object, None]) -> Iterator[None]:
    """Within the block, do this as well."""
    task = _lasting(work)
    try:
        yield
    finally:
        task.cancel()


async def _drain(pool: Pool, stop: Stop) -> None:
    """End every engine: after its requests, within a limit, or at once."""
    pool.shut_down()
    drained, now = asyncio.ensure_future(pool.drained()), asyncio.ensure_future(stop.now.wait())
    await asyncio.wait({drained, now}, return_when=asyncio.FIRST_COMPLETED)
    now.cancel()
    if not drained.done():
        pool.shut_down()
    await drained


def _resumed(pool: Pool, lookout: Lookout, seconds: float) -> None:
    """After a suspension, ask every engine whether it lives, and look at all devices anew."""
    _log.warning("resumed", suspended_seconds=round(seconds, 1))
    pool.probe()
    looking = asyncio.ensure_future(lookout.look(pool, again=True))
    looking.add_done_callback(lambda done: done.cancelled() or done.exception())
