"""The one place that builds real objects and hands them in."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

import structlog
import uvicorn
from starlette.types import ASGIApp

from supervisor import logs
from supervisor.api.app import create_app
from supervisor.api.errors import render_error
from supervisor.api.service import Service
from supervisor.auth import AccessRules, is_loopback
from supervisor.config import Settings, find_config, load_settings
from supervisor.core.events import Failure, Plan
from supervisor.core.plan import Placement
from supervisor.core.schedule import Scheduler
from supervisor.core.watch import allowed_bytes
from supervisor.daemon import allow_many_files, check_bind, daemon_lock, endpoint_file, listen, url_of
from supervisor.engine import Engine
from supervisor.engine_log import OutputLog
from supervisor.learning import Learning
from supervisor.paths import Places, places
from supervisor.planning import Planner
from supervisor.pool import Pool, PoolEdges, PoolLimits
from supervisor.prepare import EngineMaker
from supervisor.proxy.relay import relay_endpoints
from supervisor.proxy.server import RelayingProtocol
from supervisor.records import end_leftovers
from supervisor.remembered import Remembered
from supervisor.store import Database
from supervisor.wakefulness import lifetime, watch_for_resume
from supervisor.workshop import engine_maker, planner_of

_log = structlog.get_logger()


@dataclass(frozen=True)
class DaemonOptions:
    """What the command line says of the daemon; None = the configuration's value."""

    config: str | None = None
    host: str | None = None
    port: int | None = None
    engine: str | None = None
    insecure: bool = False
    log_format: logs.LogFormat = "text"


def run_daemon(options: DaemonOptions, env: Mapping[str, str] = os.environ) -> int:
    """Run the daemon in the foreground until it is told to stop; returns the exit code."""
    where = places(env)
    own_log = OutputLog(None)
    logs.configure(options.log_format, own_log.write)
    settings = _settings(options, env, where)
    check_bind(settings.server, insecure=options.insecure)
    allow_many_files()
    with daemon_lock(where), listen(settings.server.host, settings.server.port) as listener:
        for ended in end_leftovers(where.pid_records):
            _log.info("leftover_child", **asdict(ended))
        learning = Learning(Database.open(where.database), time.time)
        with contextlib.closing(learning), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, engine_maker(settings, where, env, learning), own_log, listener))
    return 0


def _settings(options: DaemonOptions, env: Mapping[str, str], where: Places) -> Settings:
    file = find_config(options.config, env, Path.cwd(), where.config)
    settings = load_settings(file, env)
    if file is not None:
        _log.info("config_file", path=str(file))
    given = {"host": options.host, "port": options.port}
    server = settings.server.model_copy(update={name: value for name, value in given.items() if value is not None})
    engine = settings.engine.model_copy(update={"path": options.engine} if options.engine else {})
    return settings.model_copy(update={"server": server, "engine": engine})


async def _serve(settings: Settings, maker: EngineMaker, own_log: OutputLog, listener: socket.socket) -> None:
    url = url_of(listener, settings.server.host)
    if maker.slots is not None:
        maker.slots.sweep()
    stop = _Stop()
    planner = planner_of(settings, maker, lambda: pool.holdings())
    remembered = Remembered(maker.learning, maker.registry)
    before = await asyncio.to_thread(remembered.begin, restore=settings.restore)
    share = settings.memory_watch.share

    def observe(event: str, model: str, engine: int, failure: Failure | None) -> None:
        _observe(event, model, engine, failure)
        if event == "engine_ready":
            remembered.ready(model)
        elif event == "engine_gone" and failure is None and not _others(pool, model, engine):
            remembered.gone(model)

    edges = replace(_edges(maker, planner), observe=observe, allowed=partial(_allowed, share))
    async with Pool(Scheduler(planner.plan), edges, PoolLimits(growth=share or 0.0)) as pool:
        service = Service(pool, maker, planner, own_log, url, time.time(), _to_epoch, request_shutdown=stop.ask)
        server = _Server(stop, _application(settings, service))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        watching = asyncio.create_task(watch_for_resume(lambda seconds: _resumed(pool, planner, seconds)))
        for model in before:
            pool.ask_load(model)
        with endpoint_file(maker.places, url, service.started_at):
            _log.info("daemon_ready", url=url, pid=os.getpid())
            gc.freeze()  # what is there now stays: collections need not look at it
            await asyncio.wait({serving, asyncio.ensure_future(stop.asked.wait())}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("daemon_stopping")
        watching.cancel()
        remembered.close()
        await _drain(pool, stop)  # open streams end with their engines, before the server closes
        maker.close()
        own_log.close()  # ends those who follow
        server.leave()
        await serving
    _log.info("daemon_stopped")


class _Stop:
    """Whether the daemon is to stop, and whether at once: somebody asked twice."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()

    def ask(self) -> None:
        """Ask once more."""
        (self.now if self.asked.is_set() else self.asked).set()


async def _drain(pool: Pool, stop: _Stop) -> None:
    """End every engine: after its requests, within a limit, or at once."""
    pool.shut_down()
    drained, now = asyncio.ensure_future(pool.drained()), asyncio.ensure_future(stop.now.wait())
    await asyncio.wait({drained, now}, return_when=asyncio.FIRST_COMPLETED)
    now.cancel()
    if not drained.done():
        pool.shut_down()
    await drained


def _edges(maker: EngineMaker, planner: Planner) -> PoolEdges:
    async def prepare(model: str, plan: Plan) -> Engine:
        assert isinstance(plan, Placement)  # all that our planner gives
        return await maker.prepare(planner.known(model), planner.placed(plan), planner.devices_of(plan))

    def again(model: str, plan: Plan, failure: Failure) -> bool:
        assert isinstance(plan, Placement)
        found = planner.failed(model, plan, failure)
        if found:
            step = planner.detour(maker.registry.find(model)).steps[-1]
            _log.warning("load_again", model=model, code=failure.code, step=step)
        return found

    return PoolEdges(prepare, planner.learn, planner.see_room, lifetime, _observe, again)


def _others(pool: Pool, model: str, engine: int) -> bool:
    """Whether the model has an engine beside this one."""
    return any(one.view.engine != engine for one in pool.status(model).engines)


def _allowed(share: float | None, plan: Plan) -> int | None:
    """What an engine of this plan may come to hold of the host's memory."""
    assert isinstance(plan, Placement)
    return None if share is None else allowed_bytes(plan.used_bytes["CPU"], plan.estimate.host_growth, share)


def _resumed(pool: Pool, planner: Planner, seconds: float) -> None:
    """The machine was suspended: ask every engine whether it lives, and look at all devices anew."""
    _log.warning("resumed", suspended_seconds=round(seconds, 1))
    pool.check()
    looking = asyncio.ensure_future(planner.look(again=True))
    looking.add_done_callback(lambda done: done.cancelled() or done.exception())


def _application(settings: Settings, service: Service) -> ASGIApp:
    server = settings.server
    rules = AccessRules(
        api_keys=server.api_keys,
        allowed_hosts=tuple(host.lower() for host in server.allowed_hosts),
        allowed_origins=server.allowed_origins,
        check_host=is_loopback(server.host) or not server.api_keys,
        any_address=not is_loopback(server.host),
    )
    relayed = relay_endpoints(service.pool, service.maker.registry, server.max_body_mib << 20, render_error)
    return create_app(service, relayed, rules)


class _Server(uvicorn.Server):
    """uvicorn whose signals set our own event: engines end first, so that open streams get a proper ending."""

    def __init__(self, stop: _Stop, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=RelayingProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=5,
            )
        )
        self._stop = stop
        self._leaving = asyncio.Event()

    async def main_loop(self) -> None:
        """uvicorn's own wakes ten times a second; once is enough for the `Date` header."""
        while not self.should_exit:
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._leaving.wait()

    def leave(self) -> None:
        """Close down: no new connections, the open ones to their end."""
        self.should_exit = True
        self._leaving.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first asks, the second ends the engines at once, a third one the server as well."""
        if self._stop.now.is_set():
            super().handle_exit(signal.SIGINT, frame)
            self._leaving.set()
        self._stop.ask()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _observe(event: str, model: str, engine: int, failure: Failure | None) -> None:
    if failure is None:
        _log.info(event, model=model, engine=engine)
    else:
        _log.warning(event, model=model, engine=engine, code=failure.code, reason=failure.message)


def _to_epoch(at: float) -> float:
    return time.time() - (lifetime() - at)
