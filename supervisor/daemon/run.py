"""The one place that builds real objects and hands them in."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import structlog

from supervisor.api.app import create_app
from supervisor.api.errors import render_error
from supervisor.api.guard import Guard
from supervisor.api.service import Service
from supervisor.config import Settings, find_config, load_settings
from supervisor.config.load import Start
from supervisor.config.settings import ServerSettings
from supervisor.core.requests.access import AccessRules, is_loopback
from supervisor.core.schedule import Pins, Scheduler
from supervisor.core.text.loglevel import LogLevel
from supervisor.daemon.edges import pool_edges
from supervisor.daemon.lock import (
    FileShares,
    allow_many_files,
    check_bind,
    daemon_lock,
    endpoint_file,
    file_shares,
    has_terminal,
    listen,
    url_of,
)
from supervisor.daemon.server import Server, Stop, loop_factory
from supervisor.engines.log import OutputLog
from supervisor.planning.learning import Learning
from supervisor.planning.planner import Planner
from supervisor.pool.inflight import Inflight
from supervisor.pool.pool import Pool, PoolLimits
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.proxy.bodies import Bodies
from supervisor.proxy.connections import ClientLimits, Connections
from supervisor.proxy.relay import Relaying, relay_endpoints
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.proxy.upstream import upstream_endpoint
from supervisor.proxy.waiting import Waiting
from supervisor.service.build import engine_maker, look, planner_of
from supervisor.service.launcher import EngineMaker
from supervisor.service.reload import Configured, Reloader
from supervisor.service.resolve import with_variant
from supervisor.service.restore import Remembered
from supervisor.store import Database
from supervisor.system import logs
from supervisor.system.logfile import LogFile
from supervisor.system.owned import keep_newest
from supervisor.system.paths import Places, places
from supervisor.system.proof import new_secret
from supervisor.system.records import end_leftovers
from supervisor.system.wakefulness import Epoch, lifetime, watch_for_resume

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
    log_format: logs.LogFormat = "text"
    log_level: LogLevel | None = None


def run_daemon(options: DaemonOptions, env: Mapping[str, str] = os.environ) -> int:
    """Run the daemon in the foreground until it is told to stop; returns the exit code."""
    where = places(env)
    own_log = OutputLog(None)
    control = logs.LogControl(options.log_level or "info", LogFile(where.daemon_log))
    logs.configure(options.log_format, own_log.write, control)
    configured = _configured(options, env, where)
    settings = configured.settings
    _take_log_settings(control, settings)
    check_bind(settings.server, insecure=options.insecure)
    shares = file_shares(allow_many_files())
    with daemon_lock(where), listen(settings.server.host, settings.server.port, shares.backlog) as listener:
        for ended in end_leftovers(where.pid_records):
            _log.info("leftover_child", **asdict(ended))
        keep_newest(where.engine_logs(), _ENGINE_LOGS)
        prober = Prober(Surroundings(env))
        learning = Learning(Database.open(where.database), time.time, prober.process_bytes)
        with contextlib.closing(learning), asyncio.Runner(loop_factory=loop_factory()) as runner:
            maker = engine_maker(settings, where, env, learning)
            source = _Source(configured, partial(_configured, options, env, where), insecure=options.insecure)
            runner.run(_serve(source, maker, prober, (own_log, control), _Door(listener, shares)))
    return 0


@dataclass(frozen=True)
class _Source:
    """The source of the settings: those of the start, and how to read them again."""

    first: Configured
    read: Callable[[], Configured]
    insecure: bool

    def check(self, settings: Settings) -> None:
        """Raise where the daemon could not run with these."""
        here = self.first.settings.server.host  # another one counts from the next start on
        check_bind(settings.server.model_copy(update={"host": here}), insecure=self.insecure)


@dataclass(frozen=True)
class _Door:
    """The listener for clients, and the number of them that may come in."""

    listener: socket.socket
    shares: FileShares

    def limits(self, server: ServerSettings) -> ClientLimits:
        """Return what a client may take; never more connections than there are files for."""
        most = self.shares.connections
        return ClientLimits(
            connections=min(server.max_connections or most, most),
            head=server.max_header_kib << 10,
            fields=server.max_headers,
            head_s=server.header_timeout,
            body_s=server.body_timeout,
            idle_s=server.idle_timeout,
        )


def _configured(options: DaemonOptions, env: Mapping[str, str], where: Places) -> Configured:
    file = find_config(options.config, env, Path.cwd(), where.config)
    start = Start(options.host, options.port, options.engine, options.insecure or options.host is not None)
    settings = load_settings(file, env, start)
    if file is not None:
        _log.info("config_file", path=str(file))
    if options.log_level is not None:
        server = settings.server.model_copy(update={"log_level": options.log_level})
        settings = settings.model_copy(update={"server": server})
    return Configured(settings, file)


async def _serve(
    source: _Source, maker: EngineMaker, prober: Prober, log: tuple[OutputLog, logs.LogControl], door: _Door
) -> None:
    own_log, control = log
    settings = source.first.settings
    stop = Stop()
    planner = planner_of(settings, maker, lambda: pool.holdings(), look(lambda: reloader.settings, maker, prober))
    pins = Pins(maker.registry.policy_of)
    scheduler = Scheduler(planner.plan, pins, settings.limits(), lambda: reloader.settings.limits())
    remembered = Remembered(maker.learning, maker.registry)
    share = settings.memory_watch.share
    edges = pool_edges(maker, planner, remembered, share, lambda model: len(pool.status(model).engines))
    calls = ToolCalls(settings.server.tool_calls)
    connections = Connections(door.limits(settings.server), render_error, time.monotonic)

    def took(changed: Settings) -> None:
        guard.rules = _access(changed, settings.server.host)
        calls.default = changed.server.tool_calls
        _take_log_settings(control, changed)
        connections.limits = door.limits(changed.server)

    async with Pool(scheduler, edges, PoolLimits(growth=share or 0.0)) as pool:
        maker.fetcher.on_change = pool.changed
        maker.find_variant = partial(with_variant, maker, planner, pool.residents)
        reloader = Reloader(source.first, (maker, planner, pool), source.read, source.check, took, time.time)
        service = Service(
            pool=pool,
            maker=maker,
            planner=planner,
            reloader=reloader,
            own_log=own_log,
            url=url_of(door.listener, settings.server.host),
            secret=new_secret(),
            started_at=time.time(),
            to_epoch=Epoch(),
            request_shutdown=stop.ask,
            inflight=Inflight(lifetime),
            pins=pins,
            tool_calls=calls,
            stopping=stop.asked.is_set,
            log_control=control,
        )
        guard = _application(settings, service)
        server = Server(stop, guard, connections, door.shares.backlog)
        serving = asyncio.create_task(server.serve(sockets=[door.listener]))
        await _first_loads(settings, maker, remembered, pool)
        with endpoint_file(maker.places, service.url, service.started_at, service.secret):
            with _watching(reloader, service, stop):
                _log.info("daemon_ready", url=service.url, pid=os.getpid())
                gc.freeze()  # what is there now stays: collections need not look at it
                asked = asyncio.ensure_future(stop.asked.wait())
                await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
            _log.info("daemon_stopping")
            remembered.close()
            await _drain(pool, stop)  # open streams end with their engines, before the server closes
        service.closing.set()  # ends those who listen to events
        maker.close()
        own_log.close()  # ends those who follow
        server.leave()
        await serving
    _log.info("daemon_stopped")


def _take_log_settings(control: logs.LogControl, settings: Settings) -> None:
    server = settings.server
    control.configure(server.log_level, server.log_max_mib << 20, server.log_files)


async def _first_loads(settings: Settings, maker: EngineMaker, remembered: Remembered, pool: Pool) -> None:
    """Ask for what was loaded before, if that is wanted, and for what is to be loaded always."""
    if maker.slots is not None:
        maker.slots.sweep()
    for model in await asyncio.to_thread(remembered.begin, restore=settings.restore):
        pool.ask_load(model)
    for entry in maker.registry:
        if entry.policy.preload:
            pool.ask_load(entry.id)


@contextlib.contextmanager
def _watching(reloader: Reloader, service: Service, stop: Stop) -> Iterator[None]:
    """Within the block, take over a configuration whose file changes, or on SIGHUP, and notice suspensions."""
    loop = asyncio.get_running_loop()
    resumed = watch_for_resume(partial(_resumed, service.pool, service.planner))
    tasks = {asyncio.ensure_future(reloader.watch()), asyncio.ensure_future(resumed)}
    terminal = has_terminal()

    def hung_up() -> None:
        if terminal and not has_terminal():
            stop.ask()  # the terminal that we run in was closed
            return
        tasks.add(task := asyncio.ensure_future(reloader.reload_quietly()))
        task.add_done_callback(tasks.discard)

    signals = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
    for one in signals:
        loop.add_signal_handler(one, hung_up)
    try:
        yield
    finally:
        for one in signals:
            loop.remove_signal_handler(one)
        for task in tasks:
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


def _resumed(pool: Pool, planner: Planner, seconds: float) -> None:
    """After a suspension, ask every engine whether it lives, and look at all devices anew."""
    _log.warning("resumed", suspended_seconds=round(seconds, 1))
    pool.check()
    looking = asyncio.ensure_future(planner.look(again=True))
    looking.add_done_callback(lambda done: done.cancelled() or done.exception())


def _application(settings: Settings, service: Service) -> Guard:
    server = settings.server
    downloads = service.maker.fetcher.progress

    def downloaded(model: str) -> float | None:
        found = downloads.get(model)
        return found.done / found.total if found is not None and found.total else None

    pool, inflight = service.pool, service.inflight
    waiting = Waiting(pool, inflight, lambda: service.reloader.settings.server.keep_alive, downloaded)
    relaying = Relaying(
        pool=pool,
        registry=service.maker.registry,
        inflight=inflight,
        bodies=_bodies(server),
        render_error=render_error,
        tool_calls=service.tool_calls,
        waiting=waiting,
    )
    rules = _access(settings, server.host)
    upstream = upstream_endpoint(relaying, lambda: service.reloader.settings.kv_store.max_mib << 20)
    return create_app(service, relay_endpoints(relaying), upstream, rules)


def _bodies(server: ServerSettings) -> Bodies:
    """Make the room for what is relayed."""
    keys = ("server.max_body_mib", "server.max_buffered_mib")
    return Bodies(server.max_body_mib << 20, server.max_buffered_mib << 20, keys)


def _access(settings: Settings, host: str) -> AccessRules:
    """Return who may use a daemon that listens on this host."""
    server = settings.server
    return AccessRules(
        api_keys=server.api_keys,
        allowed_hosts=tuple(one.lower() for one in server.allowed_hosts),
        allowed_origins=server.allowed_origins,
        check_host=is_loopback(host) or not server.api_keys,
        any_address=not is_loopback(host),
    )
