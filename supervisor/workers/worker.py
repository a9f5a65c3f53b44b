"""The worker: offers the devices of its host to one daemon, which it dials, and listens nowhere.

It reports what is free and whether its RPC servers work; when the daemon asks for a tunnel, it connects one to the RPC
server of a device. When the connection is lost, its servers end, and it dials again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import structlog

from supervisor import __version__
from supervisor.core.workers import messages as m
from supervisor.core.workers.table import SILENT_S
from supervisor.errors import WorkerRefused
from supervisor.system.machine import this_machine
from supervisor.workers.lines import Lines
from supervisor.workers.membership import Membership
from supervisor.workers.rpcserver import NotStarted, RpcProgram, RpcServers
from supervisor.workers.splice import Side

_log = structlog.get_logger()

_DIAL_S: Final = 10.0
_AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0, 15.0)  # between two tries
_LATE: Final = 2 * SILENT_S  # without a word of the daemon, which pings every second
_MOST_TUNNELS: Final = 64

Devices = Callable[[], Awaitable[tuple[m.OfferedDevice, ...]]]
"""Looks at the host's devices; in its own thread, for a probe may take long."""


class Worker:
    """One worker.

    Args:
        membership: of which daemon.
        program: what serves devices.
        build: of llama.cpp.
        devices: what is offered.
    """

    def __init__(self, membership: Membership, program: RpcProgram, build: str, devices: Devices) -> None:
        self._membership = membership
        self._build = build
        self._devices = devices
        self._servers = RpcServers(program, self._server_ended)
        self._offered: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tunnels: dict[str, set[Side]] = {}

    async def run(self) -> None:
        """Serve until it is cancelled. Raises WorkerRefused where the daemon does not let it in, and OSError."""
        context = self._membership.tls()
        tries = 0
        while True:
            try:
                connected = await self._serve(context)
                tries = 0 if connected else tries + 1
            except (OSError, TimeoutError, ValueError) as error:
                tries += 1
                _log.warning("worker_not_connected", reason=str(error) or "it does not answer")
            finally:
                await self._end_all()
            await asyncio.sleep(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])

    async def _serve(self, context: ssl.SSLContext) -> bool:
        """Serve over one connection; return whether the daemon had let it in when it ended."""
        member = self._membership
        devices = await self._devices()
        self._offered = frozenset(one.name for one in devices)
        lines = await Lines.dial(member.host, member.port, context, _DIAL_S)
        reporting = None
        try:
            lines.say(m.Hello(m.PROTOCOL, __version__, self._build, this_machine(), devices))
            while line := await lines.line(_LATE):
                match m.to_worker(line):
                    case m.Refused(m.BUSY, reason):
                        raise TimeoutError(reason)
                    case m.Refused(code, reason):
                        raise WorkerRefused(f"The daemon does not let this worker in: {reason}.", cause=code)
                    case m.Welcome(heartbeat_s):
                        _log.info("worker_connected", daemon=f"{member.host}:{member.port}", devices=len(devices))
                        reporting = reporting or asyncio.ensure_future(self._report(lines, heartbeat_s))
                    case message:
                        self._do(lines, context, message)
            _log.warning("worker_disconnected", reason="the daemon has closed the connection")
            return reporting is not None
        finally:
            if reporting is not None:
                reporting.cancel()
            lines.abort()

    async def _report(self, lines: Lines, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            devices = await self._devices()
            cpu_s = await asyncio.to_thread(self._servers.cpu_s)
            lines.say(m.Report(devices, cpu_s))

    def _do(self, lines: Lines, context: ssl.SSLContext, message: m.ToWorker) -> None:
        match message:
            case m.Ping(number):
                lines.say(m.Pong(number))
            case m.Free(device):
                self._begin(self._free(device))
            case m.Open(number, device):
                if device in self._offered and len(self._tasks) < _MOST_TUNNELS:
                    self._begin(self._tunnel(lines, context, number, device))
                else:
                    lines.say(m.Unable(number, f"there is no device {device} here"))

    async def _tunnel(self, lines: Lines, context: ssl.SSLContext, number: int, device: str) -> None:
        """Connect a tunnel to the RPC server of a device, until one of its ends is closed."""
        try:
            near = await self._servers.connect(device)
        except NotStarted as error:
            lines.say(m.Unable(number, str(error)[:256]))
            return
        try:
            far = await Lines.dial(self._membership.host, self._membership.port, context, _DIAL_S)
        except (OSError, TimeoutError) as error:
            near.close()
            lines.say(m.Unable(number, f"no second connection to the daemon: {error}"[:256]))
            return
        await self._pass_on(near, far, number, device)

    async def _pass_on(self, near: socket.socket, far: Lines, number: int, device: str) -> None:
        ours, theirs = Side(_nothing, lambda: _close(ours, theirs)), Side(_nothing, lambda: _close(ours, theirs))
        sides = self._tunnels.setdefault(device, set())
        sides |= {ours, theirs}
        try:
            await asyncio.get_running_loop().create_connection(lambda: ours, sock=near)
            far.say(m.Tunnel(number))
            theirs.take(far.transport)
            ours.join(theirs)
            await theirs.gone.wait()
        finally:
            _close(ours, theirs)
            sides -= {ours, theirs}

    async def _free(self, device: str) -> None:
        for side in tuple(self._tunnels.get(device, ())):
            side.close()
        await self._servers.free(device)

    def _server_ended(self, device: str) -> None:
        _log.warning("rpc_server_ended", device=device)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_all(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._servers.close()


def _close(*sides: Side) -> None:
    for side in sides:
        side.close()


def _nothing() -> None:
    pass
