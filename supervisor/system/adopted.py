"""A child that another image of this process has started: its pipes are read here, and its end is seen.

`exec` keeps a process's children and descriptors, and forgets what it knew of them. The event loops have no way to take
a running child in, so this transport does what theirs do: data of the pipes and the end are told to a protocol.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial

from supervisor.system import processes

_SAME_START_S = 0.5  # psutil derives the moment from the boot time, which moves a little with the clock


class NotOurs(Exception):
    """The process is not the one that was handed over; the reason is its text."""


def check_ours(pid: int, create_time: float) -> None:
    """Raise NotOurs unless the process lives, is our child, and is the one that was started then."""
    started = processes.create_time(pid)
    if started is None or processes.parent(pid) != os.getpid():
        raise NotOurs(f"process {pid} is no child of ours")
    if abs(started - create_time) > _SAME_START_S:
        raise NotOurs(f"process {pid} is another one")
    if not processes.is_running(pid):
        raise NotOurs(f"process {pid} has ended")


class AdoptedTransport(asyncio.SubprocessTransport):
    """The transport of a child that runs already. Make it with `adopted`."""

    def __init__(self, pid: int, protocol: asyncio.SubprocessProtocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._pid = pid
        self._protocol = protocol
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._open = {1, 2}
        self._returncode: int | None = None
        self._end = os.pidfd_open(pid)
        self._over = False

    async def take(self, pipes: tuple[int, int, int]) -> None:
        """Watch the process and its pipes."""
        into, *outputs = pipes
        self._pipes[0], _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(into, "wb", 0))
        self._protocol.connection_made(self)
        for number, descriptor in enumerate(outputs, 1):
            reading = partial(
                _Reading, partial(self._protocol.pipe_data_received, number), partial(self._closed, number)
            )
            self._pipes[number], _ = await self._loop.connect_read_pipe(reading, os.fdopen(descriptor, "rb", 0))
        self._loop.add_reader(self._end, self._exited)

    def get_pid(self) -> int:
        """Return its process id."""
        return self._pid

    def get_returncode(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._returncode

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """Return the transport of a pipe."""
        return self._pipes.get(fd)

    def send_signal(self, signal: int) -> None:
        """Send it a signal, unless it has ended."""
        if self._returncode is None:
            os.kill(self._pid, signal)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the pipes."""
        for pipe in self._pipes.values():
            pipe.close()

    def is_closing(self) -> bool:
        """Return whether it is over."""
        return self._over

    def _exited(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return
        self._loop.remove_reader(self._end)
        os.close(self._end)
        self._returncode = os.waitstatus_to_exitcode(status)
        self._protocol.process_exited()
        self._look()

    def _closed(self, number: int, error: Exception | None) -> None:
        self._open.discard(number)
        self._look()

    def _look(self) -> None:
        if self._returncode is not None and not self._open and not self._over:
            self._over = True
            self._loop.call_soon(self._protocol.connection_lost, None)


class _Reading(asyncio.Protocol):
    """What comes out of one pipe."""

    def __init__(self, data: Callable[[bytes], None], closed: Callable[[Exception | None], None]) -> None:
        self._data = data
        self._closed = closed

    def data_received(self, data: bytes) -> None:
        self._data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(exc)


async def adopted(
    pid: int, create_time: float, pipes: tuple[int, int, int], protocol: asyncio.SubprocessProtocol
) -> AdoptedTransport:
    """Return the transport of a child that an earlier image of this process has started.

    pipes: descriptors of its standard input, output and error; they belong to the transport from now on.
    Raises NotOurs, and OSError where a descriptor is no pipe.
    """
    check_ours(pid, create_time)
    transport = AdoptedTransport(pid, protocol)
    await transport.take(pipes)
    return transport
