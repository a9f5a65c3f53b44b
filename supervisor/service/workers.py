"""Workers: other hosts whose devices count as ours. The gateway, a process of the daemon, has the connections.

Without `workers.listen` in the configuration nothing of it runs. It begins and ends with the daemon, and goes on
through a take-over.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import structlog

import supervisor
from supervisor.core.devices import HOST, lent_name
from supervisor.core.devices.engine_list import Listed
from supervisor.core.engine_output.failures import WORKER, Cause
from supervisor.core.environment import for_python
from supervisor.core.takeover.carried import HeldProcess
from supervisor.core.workers import messages as m
from supervisor.core.workers.build import build_of
from supervisor.errors import WorkerNotFound, WorkersOff, WorkersUnavailable
from supervisor.llamacpp.program import Program
from supervisor.planning.lookout import Lookout
from supervisor.pool.pool import Pool
from supervisor.system.adopted import NotOurs
from supervisor.system.child import Child, StopGrace
from supervisor.system.paths import Places

_log = structlog.get_logger()

_BOOT: Final = (
    "import sys; root = sys.argv.pop(1); root in sys.path or sys.path.insert(0, root); "
    "from supervisor.workers.gateway import main; sys.exit(main())"
)
_ANSWER_S: Final = 20.0
_AGAIN_S: Final = 5.0  # until a gateway that has ended is started again
_GRACE: Final = StopGrace(0.0, 1.0)
_WILD: Final = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True)
class WorkerDevice:
    """A device of a worker. engine: the process that has it."""

    name: str
    description: str
    total_bytes: int
    free_bytes: int
    engine: int | None


@dataclass(frozen=True)
class WorkerStatus:
    """A worker.

    Attributes:
        state: `ready`, `refused` (its llama.cpp is another build) or `away`.
        reason: why it is not ready.
        rtt_ms: round trip of its connection.
        joined_at: seconds since 1970.
    """

    name: str
    state: str
    reason: str
    address: str
    program: str
    build: str
    rtt_ms: float | None
    joined_at: float
    devices: tuple[WorkerDevice, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs (docs/rest.md)."""
        return asdict(self)


class Joined:
    """Those that have joined, as the gateway told last.

    Attributes:
        states: by name.
    """

    def __init__(self) -> None:
        self.states: Mapping[str, m.WorkerState] = {}

    def take(self, states: Mapping[str, m.WorkerState]) -> None:
        """Take what the gateway tells."""
        self.states = states

    def devices(self, program: Program) -> tuple[Listed, ...]:
        """Return the devices that engines of this program can use. Blocks; from any thread."""
        states = self.states
        build = build_in(program) if states else ""
        ready = [state for state in states.values() if state.connected and state.build == build]
        return tuple(_listed(state, one) for state in ready for one in state.devices)


def build_in(program: Program) -> str:
    """Return the build of llama.cpp in use, as workers tell theirs; "" where there is none. Blocks."""
    found = program.usable()
    return "" if found is None else build_of(found.able)


def _listed(state: m.WorkerState, one: m.DeviceState) -> Listed:
    return Listed(
        lent_name(state.name, one.name),
        "rpc",
        f"{one.description or one.name} of {state.name}",
        one.total_bytes,
        one.free_bytes,
        f"127.0.0.1:{one.port}",
        shares_host=state.here and one.name == HOST,
        round_trip_s=state.rtt_s,
    )


@dataclass(frozen=True)
class Ground:
    """What uses the devices: engines of the program, in the pool, placed by what the lookout sees."""

    program: Program
    lookout: Lookout
    pool: Pool


class Workers:
    """All of them.

    Args:
        where, env: the daemon's.
        listen: host and port for workers; None: there are none.
        joined: learns who has joined.
        ground: what uses the devices.
        changed: called when devices come or go.
    """

    def __init__(
        self,
        where: Places,
        env: Mapping[str, str],
        listen: tuple[str, int] | None,
        joined: Joined,
        ground: Ground,
        changed: Callable[[], None],
    ) -> None:
        self._where = where
        self._env = env
        self._listen = listen
        self._joined = joined
        self._ground = ground
        self._changed = changed
        self._child: Child | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[m.Invited | m.Removed]] = {}
        self._unable = ""
        self._listening = False
        self._ports: dict[tuple[str, int], str] = {}

    async def start(self, held: HeldProcess | None = None) -> None:
        """Have the gateway run, if workers are wanted. held: the one of the image before."""
        if held is not None:
            await self._adopt(held)
        if self._listen is not None or self._child is not None:
            self._keeping = asyncio.ensure_future(self._keep())

    @property
    def listen(self) -> str | None:
        """Host and port where workers are let in; None where none are."""
        if self._listen is None:
            return None
        host, port = self._listen
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def unable(self) -> str | None:
        """Reason for which nobody is let in although somebody should be; None where that is not so."""
        return None if self._listen is None or self._listening else self._unable or "the gateway does not run yet"

    async def all(self) -> list[WorkerStatus]:
        """Return all that have joined, by name."""
        states = self._joined.states
        build = await asyncio.to_thread(build_in, self._ground.program) if states else ""
        return [_status(state, build) for _, state in sorted(states.items())]

    async def invite(self, host: str | None, seconds: float) -> m.Invited:
        """Make an invitation. host: what the worker is to dial; None: where the gateway listens, or this host's name.

        Raises WorkersOff, WorkersUnavailable.
        """
        self._running()
        listen = self._listen[0] if self._listen is not None else ""
        told = host or (socket.gethostname() if listen in _WILD else listen)
        answer = await self._ask(m.Invite(next(self._tickets), told, seconds))
        assert isinstance(answer, m.Invited)
        return answer

    async def remove(self, name: str) -> None:
        """Let a worker in no more, and end what it does. Raises WorkerNotFound, WorkersOff, WorkersUnavailable."""
        answer = await self._ask(m.Remove(next(self._tickets), name))
        if isinstance(answer, m.Removed) and not answer.found:
            raise WorkerNotFound(f"No worker '{name}' has joined. `supervisor worker list` shows who has.")

    def held(self) -> HeldProcess | None:
        """Return what the next image of this process needs to adopt the gateway; None where there is none."""
        if self._child is None:
            return None
        with contextlib.suppress(OSError):
            return self._child.held()
        return None

    def disown(self) -> None:
        """In a copy of this process: leave the gateway alone, and hear nothing of it."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self._child is not None:
            self._child.disown()
            self._child.let_go()

    async def close(self) -> None:
        """End the gateway."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self._child is not None:
            await self._child.stop(ask=None, grace=_GRACE)

    async def _keep(self) -> None:
        """Have the gateway run again whenever it has ended. Runs until it is cancelled."""
        while True:
            try:
                child = self._child or await self._spawn()
                how = await child.exit
                _log.error("gateway_ended", how=str(how), reason=self._unable)
            except OSError as error:
                self._unable = error.strerror or str(error)
                _log.error("gateway_not_started", reason=self._unable)
            self._child, self._listening = None, False
            self._take(())
            self._fail(WorkersUnavailable(f"The gateway for workers has ended. {self._unable}".strip()))
            await asyncio.sleep(_AGAIN_S)

    async def _spawn(self) -> Child:
        assert self._listen is not None
        host, port = self._listen
        root = str(Path(supervisor.__file__).parents[1])
        self._unable = ""
        self._child = child = await Child.spawn(
            [
                *(sys.executable, "-I" if sys.flags.isolated else "-P", "-c", _BOOT, root),
                *(str(self._where.workers), host, str(port)),
            ],
            env=for_python(self._env),
            on_stdout=self._hear,
            on_stderr=_grumbled,
            record_dir=self._where.pid_records,
        )
        return child

    async def _adopt(self, held: HeldProcess) -> None:
        try:
            self._child = await Child.adopt(held, on_stdout=self._hear, on_stderr=_grumbled)
        except (NotOurs, OSError) as error:
            _log.warning("gateway_not_adopted", reason=str(error))
            return
        self._listening = True
        self._say(m.Tell())

    def _hear(self, line: bytes) -> None:
        try:
            message = m.of_gateway(line)
        except ValueError as error:
            _log.error("gateway_not_understood", reason=str(error))
            return
        match message:
            case m.State(workers):
                self._take(workers)
            case m.Lost(worker, ports, reason):
                self._lost(worker, ports, reason)
            case m.Failed(0, reason):
                self._unable = reason
                _log.error("gateway_unable", reason=reason)
            case m.Invited() | m.Removed() | m.Failed():
                self._answered(message)
            case m.Listening(host, port):
                self._unable, self._listening = "", True
                if self._listen is not None:
                    self._listen = self._listen[0], port  # also for one that takes its place
                _log.info("workers_listen", host=host, port=port)

    def _answered(self, message: m.Invited | m.Removed | m.Failed) -> None:
        waiting = self._waiting.pop(message.ticket, None)
        if waiting is None or waiting.done():
            return
        if isinstance(message, m.Failed):
            waiting.set_exception(WorkersUnavailable(f"The gateway cannot do that: {message.reason}."))
        else:
            waiting.set_result(message)

    def _take(self, workers: Sequence[m.WorkerState]) -> None:
        before, now = self._joined.states, {one.name: one for one in workers}
        self._joined.take(now)
        self._ports |= {(one.name, device.port): device.name for one in workers for device in one.devices}
        for name in before.keys() | now.keys():
            was, after = name in before and before[name].connected, now.get(name)
            is_there = after is not None and after.connected
            if was != is_there:
                reason = "" if after is None else after.reason
                _log.info("worker_ready" if is_there else "worker_away", worker=name, reason=reason)
                self._look()

    def _look(self) -> None:
        """Have the machine looked at anew: devices have come, or are no more."""
        self._changed()
        looking = asyncio.ensure_future(self._ground.lookout.look(self._ground.pool))
        looking.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _lost(self, worker: str, ports: Sequence[int], reason: str) -> None:
        found = (self._ports.get((worker, port)) for port in ports)  # those of a worker that is gone already, too
        names = frozenset(lent_name(worker, name) for name in found if name is not None)
        _log.warning("worker_lost", worker=worker, devices=sorted(names), reason=reason)
        self._ground.pool.roster.lose(names, Cause(WORKER, f"The worker {worker} was lost ({reason})"))
        self._look()

    def _running(self) -> Child:
        if self._listen is None and self._child is None:
            raise WorkersOff(
                "This daemon takes no workers. Set `workers.listen`, such as 0.0.0.0:8486, in its configuration and "
                "restart it."
            )
        if self._child is None or not self._listening:
            raise WorkersUnavailable(f"The gateway for workers does not run: {self.unable}.")
        return self._child

    def _say(self, message: m.ToGateway) -> None:
        if self._child is not None:
            self._child.write_line(m.line_of(message).rstrip(b"\n"))

    async def _ask(self, message: m.Invite | m.Remove) -> m.Invited | m.Removed:
        self._running()
        waiting: asyncio.Future[m.Invited | m.Removed] = asyncio.get_running_loop().create_future()
        self._waiting[message.ticket] = waiting
        self._say(message)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await waiting
        except TimeoutError:
            raise WorkersUnavailable("The gateway for workers does not answer. Try again.") from None
        finally:
            self._waiting.pop(message.ticket, None)

    def _fail(self, error: Exception) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


def _status(state: m.WorkerState, build: str) -> WorkerStatus:
    if not state.connected:
        known, reason = "away", state.reason
    elif state.build != build:
        known = "refused"
        reason = (
            f"its llama.cpp is {state.build or 'unknown'}, and {build or 'unknown'} is in use here; install the same"
        )
    else:
        known, reason = "ready", ""
    return WorkerStatus(
        state.name,
        known,
        reason,
        state.address,
        state.program,
        state.build,
        None if state.rtt_s is None else round(state.rtt_s * 1000, 3),
        state.joined_at,
        tuple(
            WorkerDevice(lent_name(state.name, one.name), one.description, one.total_bytes, one.free_bytes, one.pid)
            for one in state.devices
        ),
    )


def _grumbled(line: bytes) -> None:
    _log.warning("gateway_said", line=line[:500].decode("utf-8", "replace"))
