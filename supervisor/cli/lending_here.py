"""Be a worker: look at this host's devices, and lend them until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from supervisor.cli.exits import OK
from supervisor.cli.options import command_name
from supervisor.core.devices import HOST, Machine
from supervisor.core.workers.build import build_of
from supervisor.core.workers.messages import OfferedDevice
from supervisor.core.workers.token import JoinToken
from supervisor.errors import WorkerNotJoined, WorkerUnusable
from supervisor.llamacpp.locate import capability_cache, locate
from supervisor.llamacpp.probe import capabilities
from supervisor.probe.machine import Prober
from supervisor.probe.places import Surroundings
from supervisor.system import logs
from supervisor.system.owned import own_folder
from supervisor.system.paths import Places, places
from supervisor.system.records import end_leftovers
from supervisor.workers.membership import Membership, joined
from supervisor.workers.rpcserver import PROGRAM, RpcProgram
from supervisor.workers.tensors import trim
from supervisor.workers.worker import Worker

try:
    import fcntl
except ImportError:  # Windows, where no worker runs
    fcntl = None  # type: ignore[assignment]  # the module is absent, not of another type

_log = structlog.get_logger()

_TRIM_S: Final = 300.0


def join_daemon(token: JoinToken, name: str) -> Membership:
    """Join the daemon that made a token. Raises WorkerRefused, and WorkerUnusable where this is a worker already."""
    where = places(os.environ)
    from supervisor.workers.joining import join  # noqa: PLC0415 - cryptography takes long

    known = _member(where)
    if known is not None:
        raise WorkerUnusable(
            f"This host is the worker '{known.name}' of {known.host} already. Remove {where.worker} to join another "
            "daemon, or this one anew."
        )
    return asyncio.run(join(where.worker, token, name))


def lend(args: argparse.Namespace) -> int:
    """Lend this host's devices until it is told to stop.

    Raises WorkerNotJoined, WorkerUnusable, WorkerRefused, and those of an engine that is not there.
    """
    where, env = places(os.environ), os.environ
    member = _member(where)
    if member is None:
        raise WorkerNotJoined(
            f"This host has joined no daemon. On the daemon's host, `{command_name(env)} worker invite` makes a token; "
            f"here, `{command_name(env)} worker join TOKEN` takes it."
        )
    engine = locate(where, env, args.engine).path
    program = engine.resolve().with_name(PROGRAM)
    if not program.is_file():
        raise WorkerUnusable(
            f"There is no {PROGRAM} beside {engine}. `{command_name(env)} engine install` brings a llama.cpp with one."
        )
    build = build_of(capabilities(engine, capability_cache(where)))
    logs.configure("text", lambda _: None)
    with _alone(where):
        for ended in end_leftovers(where.worker / "children"):
            _log.info("leftover_child", pid=ended.pid)
        cache = None if args.no_cache else where.cache / "rpc"
        rpc = RpcProgram(program, env, cache, where.worker / "children")
        devices = _Devices(Prober(Surroundings(env)), engine, frozenset(args.device))
        _check(args.device, devices.look())
        worker = Worker(member, rpc, build, devices.seen)
        asyncio.run(_serve(worker, cache, args.cache_gib << 30))
    return OK


class _Devices:
    """What this host offers."""

    def __init__(self, prober: Prober, engine: Path, wanted: frozenset[str]) -> None:
        self._prober = prober
        self._engine = engine
        self._wanted = wanted
        self._thread = ThreadPoolExecutor(1, "probe")

    async def seen(self) -> tuple[OfferedDevice, ...]:
        """Return them as they are now."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.look)

    def look(self) -> tuple[OfferedDevice, ...]:
        """Return them as they are now; blocks for as long as the drivers take."""
        every = offered(self._prober.machine(self._engine))
        return tuple(one for one in every if one.name in self._wanted) if self._wanted else _usual(every)


def offered(machine: Machine) -> tuple[OfferedDevice, ...]:
    """Return the devices of a machine as a worker tells of them; the CPU is the last."""
    gpus = [OfferedDevice(one.name, one.description[:200], one.total_bytes, one.free_bytes) for one in machine.devices]
    return (*gpus, OfferedDevice(HOST, "CPU", machine.host.total_bytes, machine.host.available_bytes))


def _usual(every: tuple[OfferedDevice, ...]) -> tuple[OfferedDevice, ...]:
    return every[:-1] or every


def _check(wanted: list[str], found: tuple[OfferedDevice, ...]) -> None:
    missing = set(wanted) - {one.name for one in found}
    if missing:
        raise WorkerUnusable(
            f"There is no device {', '.join(sorted(missing))} here. `{command_name(os.environ)} devices` shows which "
            "there are; CPU is the processor."
        )


def _member(where: Places) -> Membership | None:
    try:
        return joined(where.worker)
    except (OSError, ValueError) as error:
        raise WorkerUnusable(
            f"What {where.worker} keeps of the daemon cannot be read ({error}). Remove that folder and join anew."
        ) from None


async def _serve(worker: Worker, cache: Path | None, most_bytes: int) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.ensure_future(worker.run())
    trimming = asyncio.ensure_future(_keep_trimmed(cache, most_bytes))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    trimming.cancel()
    if not running.done():
        running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def _keep_trimmed(cache: Path | None, most_bytes: int) -> None:
    while cache is not None:
        removed = await asyncio.to_thread(trim, cache, most_bytes)
        if removed:
            _log.info("tensors_removed", mib=removed >> 20)
        await asyncio.sleep(_TRIM_S)


@contextlib.contextmanager
def _alone(where: Places) -> Iterator[None]:
    """Hold the lock of this host's worker. Raises WorkerUnusable where one runs already."""
    own_folder(where.worker)
    with (where.worker / "lock").open("ab") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WorkerUnusable("A worker runs already here.") from None
        yield
