"""Who is no worker: gets nothing of the gateway's port, whatever it sends."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trustme

from supervisor.core.workers import messages as m
from supervisor.core.workers.token import JoinToken, decode, encode
from supervisor.workers.authority import Authority, BadRequest, new_request
from supervisor.workers.members import MOST_INVITATIONS, Members
from supervisor.workers.membership import joined
from tests.support.daemon import RunningDaemon, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE
from tests.workers.stage import LISTEN, Host, hosts, invited, wait_for_gateway, workers

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def daemon(engine_binary: Path) -> Iterator[RunningDaemon]:
    with scratch_home() as home, running_daemon(home, engine_binary, LISTEN) as running:
        wait_for_gateway(running)
        yield running


@pytest.fixture
def host(engine_binary: Path) -> Iterator[Host]:
    with hosts(engine_binary, 1) as (found,):
        yield found


def blind() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.contextmanager
def dialled(daemon: RunningDaemon, context: ssl.SSLContext | None = None) -> Iterator[ssl.SSLSocket]:
    token = decode(invited(daemon))
    with (
        socket.create_connection((token.host, token.port), PATIENCE) as plain,
        (context or blind()).wrap_socket(plain, server_hostname="x") as found,
    ):
        yield found


def told(connection: ssl.SSLSocket, *lines: bytes) -> bytes:
    """All that is answered, to the end."""
    found = b""
    with contextlib.suppress(OSError):
        for line in lines:
            connection.sendall(line)
        while part := connection.recv(65536):
            found += part
    return found


@pytest.mark.parametrize(
    "line",
    [
        m.line_of(m.Hello(m.PROTOCOL, "1", "b", "m")),
        m.line_of(m.Tunnel(1)),
        m.line_of(m.Pong(1)),
        m.line_of(m.Report()),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x0e" + bytes(8) + b"\n",
        b"{" * 60_000 + b"\n",
        b"x" * 200_000,
        b"\n",
    ],
)
def test_without_a_certificate_nothing_but_joining_is_answered(daemon: RunningDaemon, line: bytes) -> None:
    with dialled(daemon) as connection:
        found = told(connection, line)
    assert found in {b"", m.line_of(m.to_worker(found)) if found else b""}
    if found:
        refused = m.to_worker(found)
        assert isinstance(refused, m.Refused)
        assert refused.code == "worker_unknown"


def test_plain_bytes_get_nothing(daemon: RunningDaemon) -> None:
    token = decode(invited(daemon))
    with socket.create_connection((token.host, token.port), PATIENCE) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        found = b""
        with contextlib.suppress(OSError):
            while part := plain.recv(4096):
                found += part
    assert len(found) < 16, "an alert of TLS at most"


def test_another_authority_s_certificate_is_none(daemon: RunningDaemon) -> None:
    context = blind()
    trustme.CA().issue_cert("studio").configure_cert(context)
    with contextlib.suppress(OSError), dialled(daemon, context) as connection:
        found = told(connection, m.line_of(m.Hello(m.PROTOCOL, "1", "b", "m")))
        assert found == b""


def test_an_invitation_is_of_use_once(daemon: RunningDaemon, engine_binary: Path) -> None:
    token = invited(daemon)
    with hosts(engine_binary, 2) as (first, second):
        done = first.run("worker", "join", token, "--name", "once", "--json")
        assert json.loads(done.stdout)["name"] == "once"
        again = second.run("worker", "join", token, "--name", "twice", "--json")
    assert json.loads(again.stdout)["error"]["code"] == "worker_refused"
    assert workers(daemon)["once"]["state"] == "away"
    daemon.http.delete("/api/v1/workers/once").raise_for_status()


def test_a_name_is_given_once(daemon: RunningDaemon, engine_binary: Path) -> None:
    with hosts(engine_binary, 2) as (first, second):
        first.join(daemon, "same")
        again = second.run("worker", "join", invited(daemon), "--name", "same")
        assert again.returncode != 0
        assert "already" in again.stderr
    daemon.http.delete("/api/v1/workers/same").raise_for_status()


def test_an_invitation_ends_by_itself(tmp_path: Path) -> None:
    members = Members(tmp_path / "members.json")
    secret = members.invite(until=100.0, now=0.0)
    assert members.is_open(secret, 99.0)
    assert not members.is_open(secret, 100.0)
    for _ in range(MOST_INVITATIONS - 1):
        members.invite(until=100.0, now=99.0)
    with pytest.raises(ValueError, match="open already"):
        members.invite(until=100.0, now=99.0)
    assert members.invite(until=200.0, now=101.0), "those that have ended count no more"


def test_nothing_is_told_to_who_only_poses_as_the_daemon(daemon: RunningDaemon, host: Host) -> None:
    true = decode(invited(daemon))
    false = encode(JoinToken(true.host, true.port, "0" * 64, true.secret))
    found = host.run("worker", "join", false, "--json")
    assert json.loads(found.stdout)["error"]["code"] == "worker_refused"
    assert "Nothing was told" in json.loads(found.stdout)["error"]["message"]
    assert host.run("worker", "join", encode(true), "--name", "true").returncode == 0, "the secret was not used"
    daemon.http.delete("/api/v1/workers/true").raise_for_status()


def test_a_worker_cannot_pass_for_the_gateway(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    key, request = new_request()
    certificate, _ = authority.sign(request, "studio")
    (tmp_path / "w.pem").write_text(certificate)
    (tmp_path / "w.key").write_bytes(key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "w.pem", tmp_path / "w.key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cadata=authority.certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        _shake_hands(client, server)
    server.load_cert_chain(authority.chain, authority.key)
    _shake_hands(client, server)


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(one, two)
    ours = server.wrap_bio(two, one, server_side=True)
    for _ in range(4):
        for side in (theirs, ours):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()


@pytest.mark.parametrize(
    "request_text", ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
)
def test_a_request_that_makes_no_sense_is_not_signed(tmp_path: Path, request_text: str) -> None:
    with pytest.raises(BadRequest):
        Authority(tmp_path).sign(request_text, "studio")


def test_the_authority_s_keys_are_its_owner_s_alone_and_stay(tmp_path: Path) -> None:
    first = Authority(tmp_path)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert Authority(tmp_path).fingerprint == first.fingerprint


def test_connections_that_say_nothing_do_not_keep_others_out(daemon: RunningDaemon, host: Host) -> None:
    token = decode(invited(daemon))
    (gateway,) = [one for one in psutil.Process(daemon.pid).children() if "workers" in " ".join(one.cmdline())]
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            silent = stack.enter_context(socket.create_connection((token.host, token.port), PATIENCE))
            with contextlib.suppress(OSError):
                silent.setblocking(False)
        until = time.monotonic() + PATIENCE
        while host.run("worker", "join", invited(daemon), "--name", "patient").returncode != 0:
            assert time.monotonic() < until, "they are hung up on after some seconds"
    assert gateway.memory_info().rss < 200 << 20
    daemon.http.delete("/api/v1/workers/patient").raise_for_status()


@pytest.mark.parametrize("words", [("worker",), ("worker", "--json")])
def test_a_host_that_has_not_joined_says_how(host: Host, words: tuple[str, ...]) -> None:
    found = host.run(*words)
    assert found.returncode != 0
    assert "worker invite" in found.stdout + found.stderr


def test_a_text_that_is_no_token_is_no_riddle(host: Host) -> None:
    found = host.run("worker", "join", "hello")
    assert found.returncode == 2
    assert "no token" in found.stderr


def test_a_daemon_without_workers_says_how_to_have_them(engine_binary: Path) -> None:
    with scratch_home() as home, running_daemon(home, engine_binary) as without:
        assert without.http.get("/api/v1/workers").json() == {"listen": None, "unable": None, "workers": []}
        answer: dict[str, Any] = without.http.post("/api/v1/workers/invitations", json={}).json()
        assert answer["error"]["code"] == "workers_off"
        assert "workers.listen" in answer["error"]["message"]
        assert not [one for one in psutil.Process(without.pid).children() if "workers" in " ".join(one.cmdline())]


def test_members_outlive_a_restart(engine_binary: Path, host: Host) -> None:
    with scratch_home() as home:
        for number in range(2):
            with running_daemon(home, engine_binary, LISTEN) as running:
                wait_for_gateway(running)
                if number == 0:
                    host.join(running, "kept")
                wait_until(lambda: "kept" in workers(running), "the worker is known")


def test_who_is_removed_before_it_has_spoken_is_none_and_takes_no_namesake_s_place(
    daemon: RunningDaemon, engine_binary: Path
) -> None:
    hello = m.line_of(m.Hello(m.PROTOCOL, "1", "b", "m"))
    with hosts(engine_binary, 2) as (old, new):
        old.join(daemon, "twice")
        member = joined(old.home / "worker")
        assert member is not None
        with contextlib.ExitStack() as stack:
            first, second = (stack.enter_context(dialled(daemon, member.tls())) for _ in range(2))
            daemon.http.delete("/api/v1/workers/twice").raise_for_status()
            assert b'"worker_unknown"' in told(first, hello)
            new.join(daemon, "twice")
            assert b'"worker_unknown"' in told(second, hello)
        assert workers(daemon)["twice"]["state"] == "away"


def test_a_port_that_is_taken_is_told(engine_binary: Path) -> None:
    with socket.socket() as taken, scratch_home() as home:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with running_daemon(home, engine_binary, {"workers": {"listen": listen}}) as running:

            def said() -> bool:
                error = running.http.post("/api/v1/workers/invitations", json={}).json().get("error", {})
                return error.get("code") == "workers_unavailable" and "in use" in error.get("message", "")

            wait_until(said, "why it does not run")


def test_a_list_of_members_that_is_damaged_is_told(engine_binary: Path) -> None:
    with scratch_home() as home:
        (home / "workers").mkdir(mode=0o700)
        (home / "workers" / "members.json").write_bytes(msgspec.json.encode({"version": 9, "members": []}))
        with running_daemon(home, engine_binary, LISTEN) as running:

            def said() -> bool:
                return "version 9" in str(running.http.get("/api/v1/workers").json()["unable"])

            wait_until(said, "why it does not run")
