"""The NATS server of a node: found, started as a child of the daemon, and started again whenever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import structlog

from supervisor.cluster.kept import Membership, Server
from supervisor.cluster.store import Bucket
from supervisor.core.cluster.identity import Peer
from supervisor.core.cluster.natsconfig import NatsConfig
from supervisor.core.environment import for_engines
from supervisor.core.takeover.carried import HeldProcess
from supervisor.errors import NatsServerFailed, NatsServerMissing, SupervisorError
from supervisor.system import processes
from supervisor.system.adopted import NotOurs
from supervisor.system.atomic import atomic_write
from supervisor.system.child import Child, StopGrace
from supervisor.system.owned import own_folder

_log = structlog.get_logger()

TOLD: Final = "SUPERVISOR_NATS_SERVER"
"""The variable that names the program."""

PROGRAM: Final = "nats-server"
OLDEST: Final = (2, 11)

_READY: Final = b"Server is ready"
_READY_S: Final = 20.0
_AGAIN_S: Final = 2.0
_VERSION_S: Final = 10.0
_VERSION_BYTES: Final = 4096
_VERSION: Final = re.compile(rb"\bv?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")
_USUAL: Final = (b"[INF]", b"[WRN]")
_GRACE: Final = StopGrace(0.0, 3.0)
_DIGITS: Final = re.compile(r"\d+")
_LINES: Final = 5


def locate(env: Mapping[str, str]) -> Path:
    """Return the program: the one that `SUPERVISOR_NATS_SERVER` names, beside our Python, or on PATH.

    Raises NatsServerMissing, also where it is too old. Blocks.
    """
    told = env.get(TOLD)
    if told:
        found: Path | None = Path(told)
    else:
        beside = shutil.which(PROGRAM, path=sysconfig.get_path("scripts"))
        named = beside or shutil.which(PROGRAM, path=env.get("PATH", ""))
        found = None if named is None else Path(named)
    if found is None:
        raise NatsServerMissing(
            "A node that keeps the cluster's store needs nats-server. Install it with "
            f"`pip install 'llama-supervisor[cluster]'`, or name it in {TOLD}."
        )
    version = _version(found, env)
    if version < OLDEST:
        said = ".".join(map(str, version)) or "of an unknown version"
        raise NatsServerMissing(f"{found} is {said}; a cluster needs {'.'.join(map(str, OLDEST))} or newer.")
    return found


def _version(program: Path, env: Mapping[str, str]) -> tuple[int, ...]:
    """Return what a program says of its version; () where that is none. Raises NatsServerMissing."""
    try:
        process = subprocess.Popen(
            [program, "--version"], env=for_engines(env), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise NatsServerMissing(f"{program} cannot be run: {error}. Name another one in {TOLD}.") from None
    late = threading.Timer(_VERSION_S, processes.signal_session, (process.pid, signal.SIGKILL))
    late.start()
    with process:
        assert process.stdout is not None
        said = process.stdout.read(_VERSION_BYTES)
        late.cancel()
        processes.signal_session(process.pid, signal.SIGKILL)
    found = _VERSION.search(said)
    return () if found is None else tuple(int(one) for one in found.groups() if one is not None)


def _route(server: Server) -> str:
    """Return where another server is reached by servers: at the port behind that for clients."""
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port + 1}"


class NatsServer:
    """The server of this node, which alone is let in until `admit` says who else is.

    Args:
        kept: the node's membership; it has an address to serve at.
        env: the daemon's. records: folder for the records of processes.
    """

    def __init__(self, kept: Membership, env: Mapping[str, str], records: Path) -> None:
        assert kept.serves is not None
        self._users: tuple[Peer, ...] = (kept.own,)
        self._told: tuple[Peer, ...] | None = None  # what the server has read of them; None: nobody knows
        self._kept = kept
        self._serves = kept.serves
        self._env = env
        self._records = records
        self._child: Child | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._said: deque[str] = deque(maxlen=_LINES)
        self._cause = ""  # of what it said last, without numbers
        self._ready = asyncio.Event()

    async def start(self, held: HeldProcess | None = None) -> None:
        """Have it run from now on, and wait until it is ready. held: the one of the image before.

        Raises NatsServerMissing, NatsServerFailed.
        """
        if held is not None:
            await self._adopt(held)
        if self._child is None:
            await self._spawn()
        assert self._child is not None
        ready = asyncio.ensure_future(self._ready.wait())
        waited: set[asyncio.Future[Any]] = {ready, self._child.exit}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED, timeout=_READY_S)
        ready.cancel()
        if not self._ready.is_set():
            await self._end()
            raise NatsServerFailed(f"nats-server does not start: {'; '.join(self._said) or 'it says nothing'}.")
        self._keeping = asyncio.ensure_future(self._keep())

    def admit(self, nodes: Iterable[Peer]) -> None:
        """Let these nodes in from now on, and nobody else: the connections of others end."""
        self._users = tuple(sorted({self._kept.own, *nodes}))
        if self._child is not None and self._ready.is_set():
            self._tell(self._child)

    def _tell(self, child: Child) -> None:
        """Have a server that is ready read who is let in, where that has changed since it did."""
        if self._users == self._told:
            return
        try:
            self._write()
        except (OSError, ValueError) as error:
            _log.error("nats_server_not_told", reason=str(error))
        else:
            processes.signal_session(child.pid, signal.SIGHUP)

    def held(self) -> HeldProcess | None:
        """Return what the next image of this process needs to adopt it; None where it does not run."""
        if self._child is None:
            return None
        with contextlib.suppress(OSError):
            return self._child.held()
        return None

    def disown(self) -> None:
        """In a copy of this process: leave it alone, and hear nothing of it."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self._child is not None:
            self._child.disown()
            self._child.let_go()

    async def close(self) -> None:
        """End it."""
        if self._keeping is not None:
            self._keeping.cancel()
        await self._end()

    async def _end(self) -> None:
        if self._child is not None:
            await self._child.stop(ask=None, grace=_GRACE)
            self._child = None

    async def _keep(self) -> None:
        """Have it run again whenever it has ended. Runs until it is cancelled."""
        while True:
            if self._child is not None:
                how = await self._child.exit
                self._child = None
                _log.error("nats_server_ended", how=str(how), said=list(self._said))
            await asyncio.sleep(_AGAIN_S)
            try:
                await self._spawn()
            except SupervisorError as error:
                _log.error("nats_server_not_started", reason=error.message)

    async def _spawn(self) -> None:
        program = await asyncio.to_thread(locate, self._env)
        self._ready.clear()
        self._said.clear()
        try:
            own_folder(self._file.parent)
            self._write()
            self._child = await Child.spawn(
                [str(program), "--config", str(self._file)],
                env=for_engines(self._env),
                on_stdout=self._heard,
                on_stderr=self._heard,
                record_dir=self._records,
            )
        except (OSError, ValueError) as error:
            raise NatsServerFailed(f"nats-server cannot be started: {error}.") from None

    @property
    def _file(self) -> Path:
        return self._kept.folder / "nats" / "nats.conf"

    def _write(self) -> None:
        """Write what the server reads. Raises OSError, ValueError."""
        config = NatsConfig(
            name=self._kept.name,
            host=self._serves.host,
            port=self._serves.port,
            folder=str(self._file.parent / "store"),
            authority=str(self._kept.authority),
            chain=str(self._kept.chain),
            key=str(self._kept.key),
            users=self._users,
            buckets=get_args(Bucket),
            routes=[_route(one) for one in self._kept.servers if one != self._serves],
            route_port=self._serves.port + 1,
        )
        atomic_write(self._file, config.text().encode())
        self._told = self._users

    async def _adopt(self, held: HeldProcess) -> None:
        try:
            self._child = await Child.adopt(held, on_stdout=self._heard, on_stderr=self._heard)
        except (NotOurs, OSError) as error:
            _log.warning("nats_server_not_adopted", reason=str(error))
            return
        self._ready.set()
        self._told = None

    def _heard(self, line: bytes) -> None:
        text = line[:500].decode("utf-8", "replace")
        if _READY in line:
            self._ready.set()
            if self._child is not None:
                self._tell(self._child)
        elif line.strip() and not any(one in line for one in _USUAL):
            self._said.append(text.strip())
            cause = _DIGITS.sub("", text)
            if cause != self._cause:  # it tries again every second, and says so each time
                _log.warning("nats_server_said", line=text)
            self._cause = cause
