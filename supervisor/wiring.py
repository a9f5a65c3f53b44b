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
from dataclasses import asdict, dataclass
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
from supervisor.daemon import allow_many_files, check_bind, daemon_lock, endpoint_file, listen, url_of
from supervisor.engine import Engine
from supervisor.engine_log import OutputLog
from supervisor.learning import Learning
from supervisor.paths import Places, places
from supervisor.planning import Planner
from supervisor.pool import Pool, PoolEdges
from supervisor.prepare import EngineMaker
from supervisor.proxy.relay import relay_endpoints
from supervisor.proxy.server import RelayingProtocol
from supervisor.proxy.toolcalls import ToolCalls
from supervisor.records import end_leftovers
from supervisor.store import Database
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
    stop = _Stop()
    planner = planner_of(settings, maker, lambda: pool.holdings())
    async with Pool(Scheduler(planner.plan), _edges(maker, planner)) as pool:
        calls = ToolCalls(settings.server.tool_calls)
        service = Service(pool, maker, planner, own_log, url, time.time(), _to_epoch, stop.ask, calls)
        server = _Server(stop, _application(settings, service))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        with endpoint_file(maker.places, url, service.started_at):
            _log.info("daemon_ready", url=url, pid=os.getpid())
            gc.freeze()  # what is there now stays: collections need not look at it
            await asyncio.wait({serving, asyncio.ensure_future(stop.asked.wait())}, return_when=asyncio.FIRST_COMPLETED)
        _log.info("daemon_stopping")
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

    return PoolEdges(prepare, planner.learn, planner.see_room, time.monotonic, _observe)


def _application(settings: Settings, service: Service) -> ASGIApp:
    server = settings.server
    rules = AccessRules(
        api_keys=server.api_keys,
        allowed_hosts=tuple(host.lower() for host in server.allowed_hosts),
        allowed_origins=server.allowed_origins,
        check_host=is_loopback(server.host) or not server.api_keys,
        any_address=not is_loopback(server.host),
    )
    pool, registry, limit = service.pool, service.maker.registry, server.max_body_mib << 20
    relayed = relay_endpoints(pool, registry, limit, render_error, service.tool_calls)
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


def _to_epoch(monotonic: float) -> float:
    return time.time() - (time.monotonic() - monotonic)
