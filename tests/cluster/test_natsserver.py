"""The NATS server of a node: a real one, at 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import nats
import nats.aio.client
import psutil
import pytest
from nats.js.api import KeyValueConfig

from supervisor.cluster.joining import begin
from supervisor.cluster.kept import Membership, Server, keep
from supervisor.cluster.natsserver import NatsServer, locate
from supervisor.cluster.natsstore import NatsStore
from supervisor.cluster.store import Bucket, StoreUnavailable
from supervisor.core.cluster.identity import SERVER
from supervisor.core.cluster.natsconfig import NatsConfig, inbox_of
from supervisor.errors import NatsServerFailed, NatsServerMissing
from supervisor.system.child import Child, StopGrace
from supervisor.workers.authority import Authority, BadRequest, new_request
from tests.support.certificates import Authority as Foreign
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.programs import beside_python

pytestmark = pytest.mark.anyio

REFUSALS = (ssl.SSLError, ConnectionError)
SECRETS = {"SUPERVISOR_API_KEY": "a secret", "HF_TOKEN": "a secret", "NATS_PASSWORD": "a secret"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def node(folder: Path) -> Membership:
    """The first node of a cluster."""
    return begin(folder, "first", ("127.0.0.1", free_port()), [Server("127.0.0.1", free_port())])


def server_of(kept: Membership, **env: str) -> NatsServer:
    records = kept.folder / "records"
    records.mkdir(exist_ok=True)
    return NatsServer(kept, {**os.environ, **env}, records)


def port_of(kept: Membership) -> int:
    assert kept.serves is not None
    return kept.serves.port


def process_of(server: NatsServer) -> psutil.Process:
    held = server.held()
    assert held is not None
    return psutil.Process(held.pid)


@contextlib.asynccontextmanager
async def running(kept: Membership, **env: str) -> AsyncIterator[NatsServer]:
    server = server_of(kept, **env)
    try:
        await server.start()
        yield server
    finally:
        await server.close()


@dataclasses.dataclass(frozen=True)
class Connection:
    """A node's connection.

    Attributes:
        back: set whenever it is connected again.
        lost: set when it breaks.
        faults: what the server refused.
    """

    client: nats.aio.client.Client
    back: asyncio.Event
    lost: asyncio.Event
    faults: asyncio.Queue[str]

    async def refusal(self) -> str:
        """What the server refuses next."""
        async with asyncio.timeout(PATIENCE):
            return await self.faults.get()

    async def again(self) -> None:
        """Wait until it is connected again."""
        async with asyncio.timeout(PATIENCE):
            await self.back.wait()


@contextlib.asynccontextmanager
async def connected(kept: Membership, *ports: int) -> AsyncIterator[Connection]:
    """A node's connection to its own server, or to those at these ports."""
    back, lost, faults = asyncio.Event(), asyncio.Event(), asyncio.Queue[str]()

    async def hear(error: Exception) -> None:
        faults.put_nowait(str(error))

    async def is_back() -> None:
        back.set()

    async def is_lost() -> None:
        lost.set()

    client = await nats.connect(
        servers=[f"tls://127.0.0.1:{port}" for port in ports or (port_of(kept),)],
        tls=kept.dialling(),
        tls_hostname="node",
        inbox_prefix=inbox_of(kept.own),
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.05,
        reconnected_cb=is_back,
        disconnected_cb=is_lost,
        error_cb=hear,
    )
    try:
        yield Connection(client, back, lost, faults)
    finally:
        await client.close()


def say(port: int, tls: ssl.SSLContext) -> bytes:
    """What the server answers to CONNECT and PING over TLS."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
        info = b""
        while not info.endswith(b"\r\n"):
            if not (piece := plain.recv(1)):
                return b""
            info += piece
        assert json.loads(info.removeprefix(b"INFO "))["tls_required"]
        with tls.wrap_socket(plain, server_hostname="node") as inside:
            inside.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            return inside.recv(4096)


def bare(kept: Membership) -> ssl.SSLContext:
    """A client that trusts the server, and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(kept.authority)
    return context


async def test_a_node_is_let_in_and_what_it_stores_is_there(tmp_path: Path) -> None:
    kept = node(tmp_path / 'a "cluster" of $HOME #1')
    async with running(kept), connected(kept) as one:
        assert b"PONG" in await asyncio.to_thread(say, port_of(kept), kept.dialling())
        bucket = await one.client.jetstream().create_key_value(KeyValueConfig("claims"))
        await bucket.put("model", b"first")
        assert (await bucket.get("model")).value == b"first"


async def test_strangers_are_not_let_in(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    foreign = bare(kept)
    foreign.load_cert_chain(*Foreign(tmp_path).issue("first"))
    old = kept.dialling()
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with running(kept):
        for one in (bare(kept), foreign, old):
            with pytest.raises(REFUSALS):
                await asyncio.to_thread(say, port_of(kept), one)
        assert b"PONG" in await asyncio.to_thread(say, port_of(kept), kept.dialling())


async def test_without_tls_nothing_is_answered(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(kept))
        await reader.readline()
        writer.write(b'CONNECT {"verbose":true}\r\nPING\r\nPING\r\n')
        async with asyncio.timeout(PATIENCE):
            said = b""
            with contextlib.suppress(ConnectionError):
                said = await reader.read()
        assert b"PONG" not in said
        assert b"+OK" not in said
        writer.close()


async def test_a_node_cannot_look_at_the_server_itself(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept), connected(kept) as one:
        await one.client.publish("$SYS.REQ.SERVER.PING", reply=one.client.new_inbox())
        await one.client.flush(int(PATIENCE))
        assert "permissions violation" in (await one.refusal()).lower()


@pytest.mark.parametrize(
    ("subject", "asks"),
    [
        ("anything", True),
        ("$KV.others.key", True),
        ("$KV.config.other", True),
        ("$KV.config.shared.x", True),
        ("$JS.API.STREAM.DELETE.KV_claims", True),
        ("$JS.API.STREAM.PURGE.KV_nodes", True),
        ("$JS.API.STREAM.CREATE.others", True),
        ("$JS.API.STREAM.LIST", True),
        ("_INBOX.another.x", True),
        (">", False),
        ("_INBOX.>", False),
        ("$KV.claims.>", False),
        ("$JS.API.>", False),
    ],
)
async def test_a_node_may_use_no_subject_but_those_that_it_needs(tmp_path: Path, subject: str, asks: bool) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept), connected(kept) as one:
        if asks:
            await one.client.publish(subject, b"{}")
        else:
            await one.client.subscribe(subject)
        await one.client.flush(int(PATIENCE))
        assert "permissions violation" in (await one.refusal()).lower()


def second_of(kept: Membership, folder: Path, *, host: str = "127.0.0.1", server: bool = False) -> Membership:
    """Another node of the same cluster, with a certificate of its authority."""
    key, request = new_request()
    authority = Authority(kept.folder)
    certificate, serial = authority.sign_node(request, "second", host, server=server)
    found = dataclasses.replace(kept, folder=folder, name="second", serial=serial)
    keep(found, authority.certificate, certificate, key)
    return found


async def test_who_is_removed_is_cut_off_and_let_in_no_more(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    second, namesake = (second_of(kept, tmp_path / name) for name in ("second", "namesake"))
    async with running(kept) as server:
        server.admit([second.own])
        await let_in(second, port_of(kept))
        async with connected(kept) as one, connected(second, port_of(kept)) as other:
            server.admit([namesake.own])
            async with asyncio.timeout(PATIENCE):
                await other.lost.wait()
            await let_in(namesake, port_of(kept))
            assert await said_to(second, port_of(kept)) == b""
            await one.client.flush(int(PATIENCE))  # who stays is not disturbed
            assert not one.back.is_set()


async def test_no_host_has_the_name_of_a_user(tmp_path: Path) -> None:
    """A host says itself what it is called; servers take any name in a certificate for its user."""
    kept = node(tmp_path / "cluster")
    for host in (kept.own.uri, SERVER, "node:second:1f", "a:b", "a b", "::x"):
        with pytest.raises(BadRequest, match="neither an address nor a name"):
            second_of(kept, tmp_path / "second", host=host)
    async with running(kept) as server:
        for host in ("::1", "fe80::1%eth0", "a_b.example-1.org"):
            second = second_of(kept, tmp_path / "second", host=host)
            assert await said_to(second, port_of(kept)) == b""
            server.admit([second.own])
            await let_in(second, port_of(kept))


async def test_a_node_that_passes_for_a_server_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = asyncio.Event()
    monkeypatch.setattr("supervisor.cluster.natsstore._log", Heard("cluster_unreachable", refused))
    kept = node(tmp_path / "cluster")
    second = second_of(kept, tmp_path / "second")
    async with running(second) as server:
        server.admit([kept.own])
        await let_in(kept, port_of(kept))  # a node that would not look
        store = NatsStore(kept.servers, kept.storing(), kept.own, lambda _: None)
        connecting = asyncio.ensure_future(store.connect())
        async with asyncio.timeout(PATIENCE):
            await refused.wait()
        assert "it is no NATS server of the cluster" in store._said
        assert not connecting.done()
        connecting.cancel()
        monkeypatch.undo()
    async with running(kept):
        store = NatsStore(kept.servers, kept.storing(), kept.own, lambda _: None)
        async with asyncio.timeout(PATIENCE):
            await store.connect()
        await store.close()


async def let_in(kept: Membership, port: int) -> None:
    """Wait until a node is let in: a server reads its list a moment after it is told to."""
    async with asyncio.timeout(PATIENCE):
        while b"PONG" not in await said_to(kept, port):
            pass


async def said_to(kept: Membership, port: int) -> bytes:
    """What a server answers to a node's PING; nothing where it is not let in."""
    said = await asyncio.to_thread(say, port, kept.dialling())
    return b"" if b"Authorization Violation" in said else said


async def test_the_port_for_servers_is_for_servers(tmp_path: Path) -> None:
    three = Three(tmp_path / "cluster")
    second = second_of(three.kept, tmp_path / "second")
    server = second_of(three.kept, tmp_path / "server", server=True)
    async with three.running(0):
        with pytest.raises(REFUSALS):
            await asyncio.to_thread(say_as_server, three.routes[0], bare(three.kept))
        said = await asyncio.to_thread(say_as_server, three.routes[0], second.dialling())
        assert b"Authorization Violation" in said
        assert b"PONG" not in said
        assert b"PONG" in await asyncio.to_thread(say_as_server, three.routes[0], server.dialling())


def say_as_server(port: int, tls: ssl.SSLContext) -> bytes:
    """What a server answers to CONNECT at its port for servers, where TLS comes first, until it hangs up.

    CONNECT has to be the first that it is told, and to name the cluster.
    """
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        tls.wrap_socket(plain, server_hostname="node") as inside,
    ):
        inside.sendall(b'CONNECT {"verbose":false,"name":"x","cluster":"supervisor"}\r\nPING\r\n')
        found = b""
        while b"PONG" not in found and (piece := inside.recv(4096)):
            found += piece
        return found


async def test_it_runs_again_when_it_ends_and_has_kept_what_was_stored(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept) as server, connected(kept) as one:
        bucket = await one.client.jetstream().create_key_value(KeyValueConfig("claims"))
        await bucket.put("model", b"first")
        before = process_of(server)
        before.kill()
        await one.again()
        assert process_of(server).pid != before.pid
        assert (await bucket.get("model")).value == b"first"


async def test_it_runs_again_as_soon_as_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.cluster.natsserver._AGAIN_S", 0.05)
    program = tmp_path / "nats-server"
    program.symlink_to(beside_python("nats-server"))
    kept = node(tmp_path / "cluster")
    async with (
        running(kept, SUPERVISOR_NATS_SERVER=str(program)) as server,
        connected(kept) as one,
    ):
        tried = asyncio.Event()
        monkeypatch.setattr("supervisor.cluster.natsserver._log", Heard("nats_server_not_started", tried))
        program.unlink()
        process_of(server).kill()
        async with asyncio.timeout(PATIENCE):
            await tried.wait()
        program.symlink_to(beside_python("nats-server"))
        await one.again()


class Heard:
    """A log that tells when an event is logged."""

    def __init__(self, event: str, heard: asyncio.Event) -> None:
        self._event = event
        self._heard = heard

    def error(self, event: str, **_: object) -> None:
        if event == self._event:
            self._heard.set()

    warning = error


async def test_it_ends_with_its_owner_and_leaves_no_record(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept) as server:
        process = process_of(server)
        assert list((kept.folder / "records").iterdir())
    assert not process.is_running()
    assert not list((kept.folder / "records").iterdir())
    assert server.held() is None


async def test_what_it_is_given_is_for_its_owner_alone(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept):
        folder = kept.folder / "nats"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "nats.conf").stat().st_mode) == 0o600


async def test_it_gets_no_secret(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept, **SECRETS) as server:
        found = process_of(server).environ()
        assert found["PATH"] == os.environ["PATH"]
        assert not SECRETS.keys() & found.keys()


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    with socket.create_server(("127.0.0.1", port_of(kept))):
        server = server_of(kept)
        with pytest.raises(NatsServerFailed, match=f"{port_of(kept)}.*address already in use"):
            await server.start()
        assert server.held() is None
    await server.start()
    await server.close()


async def test_a_store_that_is_none_is_told(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    (kept.folder / "nats").mkdir(mode=0o700)
    (kept.folder / "nats" / "store").write_text("")
    with pytest.raises(NatsServerFailed, match="storage directory is not a directory"):
        await server_of(kept).start()


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb"])
async def test_a_folder_that_cannot_be_written_down_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(NatsServerFailed, match="cannot stand in the configuration"):
        await server_of(node(tmp_path / name)).start()


async def test_a_folder_that_others_write_to_is_refused(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    (kept.folder / "nats").mkdir()
    (kept.folder / "nats").chmod(0o770)
    with pytest.raises(NatsServerFailed, match="others can write to it"):
        await server_of(kept).start()


async def test_what_a_program_says_before_it_ends_is_told(tmp_path: Path) -> None:
    program = script(
        tmp_path, 'test "$1" = --version && exec echo nats-server: v2.15.1\necho "no such luck" >&2; exit 4'
    )
    with pytest.raises(NatsServerFailed, match="no such luck"):
        await server_of(node(tmp_path / "cluster"), SUPERVISOR_NATS_SERVER=str(program)).start()


async def test_one_that_is_never_ready_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.cluster.natsserver._READY_S", 0.2)
    text = 'test "$1" = --version && exec echo nats-server: v2.15.1\necho $$ > "$(dirname "$0")/pid"; exec sleep 3600'
    server = server_of(node(tmp_path / "cluster"), SUPERVISOR_NATS_SERVER=str(script(tmp_path, text)))
    with pytest.raises(NatsServerFailed, match="it says nothing"):
        await server.start()
    assert server.held() is None
    assert not list((tmp_path / "cluster" / "records").iterdir())


# what another process has to do with it

OWNER = """
import asyncio, os, sys
from pathlib import Path
import msgspec, structlog
from supervisor.cluster.kept import membership
from supervisor.cluster.natsserver import NatsServer
from supervisor.core.takeover.carried import HeldProcess

async def main():
    kept = membership(Path(sys.argv[1]))
    server = NatsServer(kept, os.environ, kept.folder / "records")
    held = msgspec.json.decode(sys.argv[2], type=HeldProcess) if len(sys.argv) > 2 else None
    await server.start(held)
    print(server.held().pid, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line == "next\\n":
            held = server.held()
            for one in held.pipes:
                os.set_inheritable(one, True)
            told = msgspec.json.encode(held).decode()
            os.execv(sys.executable, [sys.executable, "-P", "-c", os.environ["OWNER"], sys.argv[1], told])
        if line == "close\\n":
            await server.close()
        print(server.held() and server.held().pid, flush=True)

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
asyncio.run(main())
"""


class Owner:
    """A process that has the server as its child."""

    def __init__(self, kept: Membership) -> None:
        (kept.folder / "records").mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", OWNER, kept.folder],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OWNER": OWNER},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.server = self.told()

    def told(self) -> psutil.Process:
        """The server's process, as it is told next."""
        assert self.process.stdout is not None
        return psutil.Process(int(self.process.stdout.readline()))

    def ask(self, word: str) -> None:
        """`next`: become the next image. `pid`: tell the server's. `close`: end it, and tell so."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        with self.process:
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next daemon ends what is left")
def test_it_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    owner = Owner(node(tmp_path / "cluster"))
    try:
        owner.process.send_signal(signal.SIGKILL)
        psutil.wait_procs([owner.server], timeout=PATIENCE)
        assert not owner.server.is_running()
    finally:
        owner.end()


@pytest.mark.skipif(sys.platform != "linux", reason="a child is adopted on Linux alone")
async def test_the_next_image_adopts_it_and_keeps_it_running(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    owner = await asyncio.to_thread(Owner, kept)
    try:
        async with connected(kept) as one:
            owner.ask("next")
            assert await asyncio.to_thread(owner.told) == owner.server
            await one.client.flush()
            assert not one.back.is_set(), "its connections stay"
            owner.server.kill()
            await one.again()
            owner.ask("pid")
            again = await asyncio.to_thread(owner.told)
            assert again != owner.server
            owner.ask("close")
            assert owner.process.stdout is not None
            assert await asyncio.to_thread(owner.process.stdout.readline) == "None\n"
            assert not again.is_running()
    finally:
        owner.end()


async def test_one_that_was_handed_over_and_has_ended_is_replaced(tmp_path: Path) -> None:
    kept = node(tmp_path / "cluster")
    async with running(kept) as first:
        held = first.held()
    assert held is not None
    again = server_of(kept)
    await again.start(held)
    try:
        assert b"PONG" in await asyncio.to_thread(say, port_of(kept), kept.dialling())
    finally:
        await again.close()


async def test_one_that_is_disowned_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, spawned = Child.spawn, []

    async def noted(*argv: Any, **options: Any) -> Child:
        spawned.append(await spawn(*argv, **options))
        return spawned[0]

    monkeypatch.setattr(Child, "spawn", noted)
    server = server_of(node(tmp_path / "cluster"))
    await server.start()
    process = process_of(server)
    try:
        server.disown()
        await server.close()
        assert process.is_running()
        assert process.status() != psutil.STATUS_ZOMBIE
    finally:
        process.kill()
        async with asyncio.timeout(PATIENCE):
            await spawned[0].exit


# three of them


class Three:
    """Three servers that know each other, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.ports, self.routes = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
        self._folder = folder
        self.kept = node(folder)

    @contextlib.asynccontextmanager
    async def running(self, number: int, *, apart: bool = False) -> AsyncIterator[Child]:
        """One of them. apart: it reaches no other one, nor they it."""
        routes = [free_port() for _ in range(3)] if apart else self.routes
        config = NatsConfig(
            name=f"node-{number}",
            host="127.0.0.1",
            port=self.ports[number],
            folder=str(self._folder / f"store-{number}"),
            routes=[f"127.0.0.1:{port}" for port in routes if port != routes[number]],
            route_port=routes[number],
            authority=str(self.kept.authority),
            chain=str(self.kept.chain),
            key=str(self.kept.key),
            users=[self.kept.own],
            buckets=get_args(Bucket),
        )
        file = self._folder / f"nats-{number}.conf"
        file.write_text(config.text(), "utf-8")
        ready = asyncio.Event()

        def hear(line: bytes) -> None:
            if b"Server is ready" in line:
                ready.set()

        argv = [str(beside_python("nats-server")), "--config", str(file)]
        child = await Child.spawn(argv, env=os.environ, on_stdout=hear, on_stderr=hear, record_dir=None)
        try:
            async with asyncio.timeout(PATIENCE):
                await ready.wait()
            yield child
        finally:
            await child.stop(ask=None, grace=StopGrace(0, 0))


async def test_three_of_them_keep_what_is_stored_when_one_ends(tmp_path: Path) -> None:
    """As configured: a node itself runs one that is alone."""
    three = Three(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        children = [await stack.enter_async_context(three.running(number)) for number in range(3)]
        one = await stack.enter_async_context(connected(three.kept, *three.ports))
        bucket = await first_bucket(one.client)
        await bucket.put("model", b"first")
        there = one.client.connected_url
        assert there is not None
        assert there.port is not None
        children[three.ports.index(there.port)].kill()
        await one.again()
        assert await value_of(bucket, "model") == b"first"


@pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning")
async def test_a_server_that_stands_still_is_left_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its part in the end of TLS is not waited for: asyncio would wait for half a minute, and here without end.

    nats-py does not close a connection that it has dialled in vain, as to this server; Python does, and warns.
    """
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 1e6)
    three, connected, changed = Three(tmp_path), True, asyncio.Event()

    def change(now: bool) -> None:
        nonlocal connected
        connected = now
        changed.set()

    async def becomes(wanted: bool) -> None:
        async with asyncio.timeout(PATIENCE):
            while connected is not wanted:
                changed.clear()
                await changed.wait()

    store = NatsStore(
        [Server("127.0.0.1", port) for port in three.ports], three.kept.dialling(), three.kept.own, change
    )
    async with contextlib.AsyncExitStack() as stack:
        children = [await stack.enter_async_context(three.running(number)) for number in range(3)]
        stack.push_async_callback(store.close)
        await store.connect()
        (number,) = {three.ports.index(port) for port in ports_reached() if port in three.ports}
        os.kill(children[number].pid, signal.SIGSTOP)
        await becomes(False)
        await becomes(True)
        assert three.ports[number] not in ports_reached()


async def test_a_server_that_has_lost_the_others_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.core.cluster.trust.ASK_S", 0.0)
    monkeypatch.setattr("supervisor.cluster.natsstore._PING_S", 1)
    monkeypatch.setattr("random.sample", lambda servers, count: list(servers))  # the first one is the first
    three, back = Three(tmp_path), asyncio.Event()
    servers = [Server("127.0.0.1", port) for port in three.ports]
    first, store = (
        NatsStore(servers, three.kept.storing(), three.kept.own, lambda now: back.set() if now else back.clear())
        for _ in range(2)
    )
    async with contextlib.AsyncExitStack() as stack:
        for number in (1, 2):
            await stack.enter_async_context(three.running(number))
        async with three.running(0):
            await first.connect()
            await is_ready(first)
            await first.close()
        await stack.enter_async_context(three.running(0, apart=True))
        stack.push_async_callback(store.close)
        await store.connect()
        assert three.ports[0] in ports_reached()
        back.clear()
        async with asyncio.timeout(PATIENCE):
            await back.wait()
        assert three.ports[0] not in ports_reached()
        await is_ready(store)
        assert (await store.create("claims", "key", b"value")).value == b"value"


async def is_ready(store: NatsStore) -> None:
    """Wait until it can be used."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await store.ready()


def ports_reached() -> set[int]:
    """The ports that this process has connections to."""
    found = psutil.Process().net_connections("tcp")
    return {one.raddr.port for one in found if one.raddr and one.status == psutil.CONN_ESTABLISHED}


async def first_bucket(client: nats.aio.client.Client) -> nats.js.kv.KeyValue:
    """A bucket that all three keep, once they have found each other."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(nats.errors.Error):
                return await client.jetstream(timeout=2).create_key_value(KeyValueConfig("claims", replicas=3))


async def value_of(bucket: nats.js.kv.KeyValue, key: str) -> bytes | None:
    """The value, once the two that are left have chosen a leader."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(nats.errors.Error):
                return (await bucket.get(key)).value


# where the program is


def script(folder: Path, text: str) -> Path:
    """A program of a shell's words."""
    program = folder / "nats-server"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o700)
    return program


def test_the_program_comes_with_the_extra() -> None:
    assert locate({"PATH": ""}) == beside_python("nats-server")


def test_one_on_path_is_taken_where_the_extra_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "nothing"))
    with pytest.raises(NatsServerMissing, match=r"pip install 'llama-supervisor\[cluster\]'"):
        locate({"PATH": str(tmp_path)})
    program = script(tmp_path, "echo nats-server: v2.11.0")
    assert locate({"PATH": str(tmp_path)}) == program


@pytest.mark.parametrize("said", ["v2.11.0", "v2.15.1", "v3.0.0", "v2.11.0-preview.1", "2.12"])
def test_one_that_is_new_enough_is_taken(tmp_path: Path, said: str) -> None:
    program = script(tmp_path, f"echo 'nats-server: {said}'")
    assert locate({"SUPERVISOR_NATS_SERVER": str(program)}) == program


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("echo nats-server: v2.10.29", r"is 2\.10\.29; a cluster needs 2\.11 or newer"),
        ("echo nats-server: v1.99.0", r"is 1\.99\.0"),
        ("echo hello", "of an unknown version"),
        ("exit 1", "of an unknown version"),
        ("yes", "of an unknown version"),
        ("head -c 100000000 /dev/zero", "of an unknown version"),
        ("sleep 3600 & sleep 3600", "of an unknown version"),
    ],
)
def test_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str) -> None:
    monkeypatch.setattr("supervisor.cluster.natsserver._VERSION_S", 1.0)
    program = script(tmp_path, said)
    with pytest.raises(NatsServerMissing, match=told):
        locate({"SUPERVISOR_NATS_SERVER": str(program), "PATH": os.environ["PATH"]})


@pytest.mark.parametrize("path", ["/nowhere/nats-server", "/", "a\x00b"])
def test_what_cannot_be_run_is_told(path: str) -> None:
    with pytest.raises(NatsServerMissing, match="cannot be run"):
        locate({"SUPERVISOR_NATS_SERVER": path})


def test_the_program_is_asked_without_a_secret(tmp_path: Path) -> None:
    program = script(tmp_path, f"env > {tmp_path}/told; echo nats-server: v2.15.1")
    locate({**os.environ, **SECRETS, "SUPERVISOR_NATS_SERVER": str(program)})
    assert "a secret" not in (tmp_path / "told").read_text()
