"""llama.cpp's RPC servers of one host: one for each device that is lent, on the loopback interface.

A server is started when an engine takes its device, and ended when that engine is done with it: what is left in its
memory, or of a malformed message, is no other engine's. SIGPIPE is ignored for it: an engine that leaves in the middle
of an answer would end it otherwise.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import structlog

from supervisor.core.environment import for_engines
from supervisor.system import processes
from supervisor.system.child import Child, StopGrace

_log = structlog.get_logger()

PROGRAM: Final = "ggml-rpc-server"
_START_S: Final = 30.0  # until it listens: a GPU's runtime may take some
_LOOK_S: Final = 0.02
_HOST: Final = "127.0.0.1"
_GRACE: Final = StopGrace(0.0, 0.2)  # it keeps nothing


class NotStarted(Exception):
    """An RPC server cannot be started; the text says why."""


@dataclass(frozen=True)
class RpcProgram:
    """The program, and how it is run.

    Attributes:
        path: beside the `llama-server` of the same build.
        env: of this process; it gets an engine's part of it.
        cache: the folder of tensors that were sent before; None: they are sent anew.
        records: where its processes are noted.
    """

    path: Path
    env: Mapping[str, str]
    cache: Path | None
    records: Path

    def argv(self, device: str, port: int) -> tuple[str, ...]:
        """Return the command for one device. What the shell ignores, the program it becomes ignores as well."""
        cached = ("-c",) if self.cache is not None else ()
        own = (str(self.path), "-H", _HOST, "-p", str(port), "-d", device, *cached)
        return ("/bin/sh", "-c", "trap '' PIPE; exec \"$@\"", PROGRAM, *own)


class RpcServers:
    """Those of one host.

    Args:
        program: what is run.
        ended: told of a device whose server has ended by itself.
    """

    def __init__(self, program: RpcProgram, ended: Callable[[str], None]) -> None:
        self._program = program
        self._ended = ended
        self._children: dict[str, tuple[Child, int]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def connect(self, device: str) -> socket.socket:
        """Return a connection to the server of a device, which is started if it does not run. Raises NotStarted."""
        async with self._turns.setdefault(device, asyncio.Lock()):
            if device not in self._children:
                await self._start(device)
            child, port = self._children[device]
            return await self._connected(device, child, port)

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU time of each server, in seconds, by device."""
        return {device: processes.activity(child.pid).cpu_s for device, (child, _) in self._children.items()}

    async def free(self, device: str) -> None:
        """End the server of a device, if there is one."""
        async with self._turns.setdefault(device, asyncio.Lock()):
            child, _ = self._children.pop(device, (None, 0))
            if child is not None:
                await child.stop(ask=None, grace=_GRACE)

    async def close(self) -> None:
        """End all of them."""
        await asyncio.gather(*(self.free(device) for device in tuple(self._children)))

    async def _start(self, device: str) -> None:
        port = _free_port()
        program = self._program
        env = for_engines(program.env)
        if program.cache is not None:
            env["LLAMA_CACHE"] = str(program.cache)
        try:
            child = await Child.spawn(
                program.argv(device, port),
                env=env,
                on_stdout=lambda line: _heard(device, line),
                on_stderr=lambda line: _heard(device, line),
                record_dir=program.records,
            )
        except OSError as error:
            raise NotStarted(f"{program.path.name} could not be started: {error.strerror or error}") from None
        self._children[device] = child, port
        child.exit.add_done_callback(lambda _: self._gone(device, child))

    def _gone(self, device: str, child: Child) -> None:
        if self._children.get(device, (None, 0))[0] is child:
            del self._children[device]
            self._ended(device)

    async def _connected(self, device: str, child: Child, port: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        until = loop.time() + _START_S
        while not child.exit.done():
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, (_HOST, port))
            except OSError:
                connection.close()
                if loop.time() > until:
                    raise NotStarted(f"{PROGRAM} for {device} did not listen within {_START_S:g} s") from None
                await asyncio.sleep(_LOOK_S)
                continue
            if await asyncio.to_thread(_listens, child.pid, (_HOST, port)):
                return connection
            connection.close()
            raise NotStarted(f"another program took port {port} of {_HOST}")
        raise NotStarted(f"{PROGRAM} for {device} ended: {child.exit.result()}")


def _listens(pid: int, at: tuple[str, int]) -> bool:
    """Return whether this process listens at that host and port, and not another program that was quicker."""
    try:
        found = psutil.Process(pid).net_connections("tcp4")
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and tuple(one.laddr) == at for one in found)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _heard(device: str, line: bytes) -> None:
    _log.debug("rpc_server", device=device, line=line[:500].decode("utf-8", "replace"))
