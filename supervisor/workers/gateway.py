"""The gateway: a process of the daemon that workers dial, and through which engines reach their devices.

It ends TLS, so that no byte of a tunnel passes the loop that relays answers. It outlives the daemon's image in a
take-over, and never the daemon. Messages with the daemon go over its standard input and output.

Whoever has no certificate of the daemon's authority may do one thing here: join, with the secret of an invitation.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from supervisor.core.workers import messages as m
from supervisor.core.workers.table import HEARTBEAT_S, SILENT_S, Worker, changed, is_refused
from supervisor.core.workers.token import JoinToken, encode
from supervisor.system.machine import this_machine
from supervisor.system.owned import own_folder
from supervisor.workers.authority import Authority, BadRequest
from supervisor.workers.lending import Lending
from supervisor.workers.lines import Lines
from supervisor.workers.members import Member, Members

try:
    import uvloop
except ImportError:  # on Windows
    uvloop = None  # type: ignore[assignment]  # the module is absent, not of another type

_FIRST_S: Final = 10.0  # for a handshake, and for the first line
_LOOK_S: Final = 1.0
_TELL_S: Final = 5.0  # between two states that differ in figures alone
_MOST_STRANGERS: Final = 32  # connections that have not said yet who they are
_MOST_EACH: Final = 64  # connections of one worker


class Gateway:
    """One gateway.

    Args:
        authority, members: whom it lets in.
        parent: the daemon.
        tell: sends a message to the daemon.
    """

    def __init__(
        self, authority: Authority, members: Members, parent: int, tell: Callable[[m.FromGateway], None]
    ) -> None:
        self._authority = authority
        self._members = members
        self._tell = tell
        self._machine = this_machine()
        self._workers = {one.name: Worker(one.name, one.joined_at) for one in members}
        self._voices: dict[str, Lines] = {}
        self._pings: dict[str, tuple[int, float]] = {}
        self._told: dict[str, m.WorkerState] = {}
        self._told_at = 0.0
        self._strangers = 0
        self._open: dict[str, int] = {}
        self._port = 0
        self._lending = Lending(parent, time.monotonic, self._look, self._lose)
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Let workers in at this address; return where it is. Raises OSError."""
        self._server = await asyncio.start_server(
            self._meet,
            host,
            port,
            ssl=self._tls(),
            ssl_handshake_timeout=_FIRST_S,
            ssl_shutdown_timeout=1.0,
            limit=m.MOST_LINE,
        )
        where = self._server.sockets[0].getsockname()
        self._port = where[1]
        return where[0], where[1]

    async def watch(self) -> None:
        """Ask workers for signs of life, and take note of those that give none. Runs until it is cancelled."""
        number = 0
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            for name, voice in tuple(self._voices.items()):
                worker = self._workers[name]
                if worker.is_silent(now):
                    self._part(worker, voice, f"it said nothing for {SILENT_S:g} s")
                    continue
                for offer in tuple(worker.hung(now)):
                    self._lending.give_up(worker, offer, "its RPC server does nothing: no byte and no CPU time")
                number += 1
                self._pings[name] = number, now
                voice.say(m.Ping(number))
            self._look(late=True)

    def hear(self, message: m.ToGateway) -> None:
        """Do what the daemon asks for."""
        match message:
            case m.Tell():
                self._tell_all()
            case m.Remove(ticket, name):
                self._remove(ticket, name)
            case m.Invite(ticket, host, seconds):
                until = time.time() + seconds
                try:
                    secret = self._members.invite(until, time.time())
                except ValueError as error:
                    self._tell(m.Failed(ticket, str(error)))
                    return
                token = JoinToken(host, self._port, self._authority.fingerprint, secret)
                self._tell(m.Invited(ticket, encode(token), until))

    def close(self) -> None:
        """Let nobody in any more."""
        self._lending.close()
        if self._server is not None:
            self._server.close()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._authority.chain, self._authority.key)
        context.load_verify_locations(cadata=self._authority.certificate)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection, whose first line says what it is."""
        lines = Lines(reader, writer)
        name = self._let_in(writer)
        if (self._strangers >= _MOST_STRANGERS) if name is None else (self._open.get(name, 0) >= _MOST_EACH):
            lines.abort()
            return
        self._strangers += name is None
        if name is not None:
            self._open[name] = self._open.get(name, 0) + 1
        try:
            await self._serve(lines, name)
        except (OSError, ValueError, TimeoutError):
            lines.abort()
        finally:
            self._strangers -= name is None
            if name is not None:
                self._open[name] -= 1

    def _let_in(self, writer: asyncio.StreamWriter) -> str | None:
        """Return the worker's name by its certificate; None for one without, or with one that is of no use any more."""
        certificate = writer.get_extra_info("peercert") or {}
        names = [value for parts in certificate.get("subject", ()) for key, value in parts if key == "commonName"]
        serial = str(certificate.get("serialNumber", "")).lower().lstrip("0")
        name = str(names[0]) if names else ""
        return name if self._members.is_let_in(name, serial) else None

    async def _serve(self, lines: Lines, name: str | None) -> None:
        first = m.of_worker(await lines.line(_FIRST_S))
        if name is not None:
            name = self._let_in(lines.writer)  # it may have been removed meanwhile
        if isinstance(first, m.Join):
            await self._join(lines, first)
        elif name is None:
            lines.say(m.Refused("worker_unknown", "it was removed, or never joined: join anew with an invitation"))
            await lines.close()
        elif isinstance(first, m.Hello):
            await self._attend(lines, name, first)
        elif isinstance(first, m.Tunnel):
            side = self._lending.arrive(name, first.number, lines.transport)
            if side is None:
                lines.abort()
                return
            await side.gone.wait()
        else:
            lines.abort()

    async def _join(self, lines: Lines, join: m.Join) -> None:
        if not join.secret:
            lines.say(m.Authority(self._authority.certificate))
        else:
            lines.say(self._admit(join))
        await lines.close()

    def _admit(self, join: m.Join) -> m.Joined | m.Refused:
        """Let a new worker in, if it may be."""
        if join.protocol != m.PROTOCOL:
            return m.Refused("worker_protocol", "both sides must be of the same version of llama-supervisor")
        if not self._members.is_open(join.secret, time.time()):
            return m.Refused("invitation_unknown", "the invitation was used, is too old, or the daemon was restarted")
        if join.name in self._members:
            return m.Refused(
                "worker_exists", f"there is a worker '{join.name}' already: remove it, or take another name"
            )
        if self._members.full:
            return m.Refused("workers_full", "no further worker is taken: remove one")
        try:
            certificate, serial = self._authority.sign(join.request, join.name)
            self._members.use(join.secret)
            self._members.add(Member(join.name, serial, time.time()))
        except BadRequest as error:
            return m.Refused("invalid_request", str(error))
        except OSError as error:
            return m.Refused("system_refused", f"the daemon cannot keep the worker: {error.strerror}")
        self._workers[join.name] = Worker(join.name, time.time())
        self._look()
        return m.Joined(certificate)

    async def _attend(self, lines: Lines, name: str, hello: m.Hello) -> None:
        """Have a worker there, until it goes."""
        worker, before = self._workers[name], self._voices.get(name)
        refused = is_refused(hello, m.PROTOCOL)
        if refused is not None:
            worker.disconnected(refused)
            lines.say(m.Refused("worker_protocol", refused))
            self._look()
            await lines.close()
            return
        if before is not None:
            lines.say(m.Refused(m.BUSY, "a worker of this name is connected already"))
            await lines.close()
            return
        peer = lines.writer.get_extra_info("peername") or ("",)
        worker.connected(hello, str(peer[0]), time.monotonic())
        self._voices[name] = lines
        lines.say(m.Welcome(HEARTBEAT_S))
        await self._lending.offer(worker, hello.devices, lines)
        self._look()
        reason = "it has closed its connection"
        try:
            while line := await lines.line(SILENT_S * 2):
                self._take(worker, m.of_worker(line))
        except (OSError, TimeoutError) as error:
            reason = str(error) or "it says nothing any more"
        except ValueError as error:
            reason = f"it says what cannot be understood: {str(error)[:200]}"
        finally:
            self._part(worker, lines, reason)

    def _take(self, worker: Worker, message: m.FromWorker) -> None:
        now = time.monotonic()
        match message:
            case m.Report():
                worker.reported(message, now)
            case m.Pong(number):
                worker.heard(now)
                asked, at = self._pings.get(worker.name, (-1, 0.0))
                if asked == number:
                    worker.trips.append(now - at)
            case m.Unable(number, reason):
                self._lending.unable(worker.name, number, reason)

    def _part(self, worker: Worker, voice: Lines, reason: str) -> None:
        """Have a worker gone. A connection that another one has taken the place of concerns nobody any more."""
        voice.abort()
        if self._voices.get(worker.name) is voice:
            del self._voices[worker.name]
            worker.disconnected(reason)
            self._lending.take_back(worker, reason)
            self._look()

    def _remove(self, ticket: int, name: str) -> None:
        try:
            found = self._members.remove(name)
        except OSError as error:
            self._tell(m.Failed(ticket, f"the list of workers cannot be written: {error.strerror}"))
            return
        worker, voice = self._workers.get(name), self._voices.get(name)
        if worker is not None and voice is not None:
            self._part(worker, voice, "it was removed")
        self._workers.pop(name, None)
        self._look()
        self._tell(m.Removed(ticket, found))

    def _lose(self, worker: str, ports: tuple[int, ...], reason: str) -> None:
        self._look()
        self._tell(m.Lost(worker, ports, reason))

    def _look(self, *, late: bool = False) -> None:
        """Tell the daemon what is new. late: figures, too, if they were not told for a while."""
        now = {name: worker.state(self._machine) for name, worker in self._workers.items()}
        if changed(self._told, now) or (late and now != self._told and time.monotonic() - self._told_at >= _TELL_S):
            self._tell_all()

    def _tell_all(self) -> None:
        self._told = {name: worker.state(self._machine) for name, worker in self._workers.items()}
        self._told_at = time.monotonic()
        self._tell(m.State(tuple(self._told.values())))


async def run(folder: Path, host: str, port: int) -> int:
    """Run until the standard input is at its end."""
    loop = asyncio.get_running_loop()
    said, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout.buffer)

    def tell(message: m.FromGateway) -> None:
        said.write(m.line_of(message))

    try:
        own_folder(folder)
        gateway = Gateway(Authority(folder), Members(folder / "members.json"), os.getppid(), tell)
        where = await gateway.listen(host, port)
    except (OSError, ValueError) as error:
        tell(m.Failed(0, f"{error.strerror or error}" if isinstance(error, OSError) else str(error)))
        said.close()  # after what was said
        await asyncio.sleep(0)
        return 1
    tell(m.Listening(*where))
    reader = asyncio.StreamReader(limit=m.MOST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    watching = asyncio.ensure_future(gateway.watch())
    try:
        while line := await reader.readline():
            gateway.hear(m.to_gateway(line))
    finally:
        watching.cancel()
        gateway.close()
    return 0


def main() -> int:
    """Run with folder, host and port as arguments."""
    folder, host, port = sys.argv[1:]
    with asyncio.Runner(loop_factory=getattr(uvloop, "new_event_loop", None)) as runner:
        return runner.run(run(Path(folder), host, int(port)))


if __name__ == "__main__":
    sys.exit(main())
