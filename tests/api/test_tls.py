"""TLS by certificate files: real connections, renewed files, clients with certificates, plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.system.certificates import TlsFiles, server_context
from tests.api.conftest import HELLO
from tests.support.certificates import Authority
from tests.support.daemon import ROOT, RunningDaemon, environment, running_daemon, scratch_home, wait_until
from tests.support.patience import PATIENCE

NOWHERE = Path("/nonexistent")


@contextlib.contextmanager
def serving(home: Path, authority: Authority, **more: Any) -> Iterator[RunningDaemon]:
    """A daemon with a certificate for localhost; no engine is needed."""
    cert, key = authority.issue("localhost", "127.0.0.1")
    server = {"tls_cert": str(cert), "tls_key": str(key), **more}
    with running_daemon(home, NOWHERE, {"server": server}) as running:
        yield running


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with scratch_home() as folder:
        yield folder


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def daemon(home: Path, authority: Authority) -> Iterator[RunningDaemon]:
    with serving(home, authority) as running:
        yield running


def trusting(authority: Authority, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if own is not None:
        context.load_cert_chain(own)
    return context


def port_of(daemon: RunningDaemon) -> int:
    return int(daemon.url.rpartition(":")[2])


def serial(daemon: RunningDaemon, authority: Authority) -> str:
    """The number of the certificate that is shown now."""
    with (
        socket.create_connection(("127.0.0.1", port_of(daemon)), timeout=PATIENCE) as plain,
        trusting(authority).wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        found = connection.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


def log_of(daemon: RunningDaemon) -> str:
    return (daemon.home / "daemon-output.log").read_text()


def told(daemon: RunningDaemon) -> str:
    """The certificate in the endpoint file."""
    return str(json.loads((daemon.home / "endpoint.json").read_text())["certificate"])


def command(daemon: RunningDaemon, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own, that finds the daemon by its endpoint file."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "supervisor", *arguments],
        env=environment(daemon.home, NOWHERE, **more),
        cwd=daemon.home,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_a_client_that_trusts_the_authority_is_served(daemon: RunningDaemon, authority: Authority) -> None:
    assert daemon.url.startswith("https://127.0.0.1:")
    with httpx.Client(verify=trusting(authority), trust_env=False, timeout=PATIENCE) as client:
        for host in ("localhost", "127.0.0.1"):
            answer = client.get(f"https://{host}:{port_of(daemon)}/health")
            assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        large = client.post(f"{daemon.url}/api/v1/models/load", content=b"x" * (2 << 20))
        assert large.json()["error"]["code"] == "payload_too_large"
    with httpx.Client(trust_env=False) as stranger, pytest.raises(httpx.ConnectError):
        stranger.get(f"{daemon.url}/health")


def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    cert, key = authority.issue("localhost", into="modern")
    assert server_context(TlsFiles(str(cert), str(key))).minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("path", ["/health", "/v1/messages"])
def test_who_speaks_plain_http_is_told(daemon: RunningDaemon, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(daemon), timeout=PATIENCE)
    connection.request("POST", path, body=b"{}", headers={"authorization": "Bearer whatever"})
    answer = connection.getresponse()
    body = json.loads(answer.read())
    assert (answer.status, body["error"]["code"]) == (400, "tls_required")
    assert (answer.headers["connection"], bool(answer.headers["x-request-id"])) == ("close", True)
    connection.close()


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x00\x01\x02", b"nonsense\r\n\r\n"])
def test_who_speaks_neither_is_closed_and_nothing_is_logged(
    daemon: RunningDaemon, authority: Authority, said: bytes
) -> None:
    before = log_of(daemon)
    with socket.create_connection(("127.0.0.1", port_of(daemon)), timeout=PATIENCE) as plain:
        plain.sendall(said)
        plain.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while plain.recv(4096):
                pass
    serial(daemon, authority)
    assert log_of(daemon) == before


def test_handshakes_that_do_not_get_on_are_bounded(authority: Authority) -> None:
    """More silent clients than there may be handshakes: the oldest leave, and others get through."""
    cert, key = authority.issue("localhost", into="bounded")
    server = {"tls_cert": str(cert), "tls_key": str(key)}
    with (
        scratch_home() as other,
        contextlib.ExitStack() as stack,
        running_daemon(other, NOWHERE, {"server": server}, open_files=256) as daemon,
    ):
        address = ("127.0.0.1", port_of(daemon))
        silent = [stack.enter_context(socket.create_connection(address, timeout=PATIENCE)) for _ in range(100)]
        assert silent[0].recv(1) == b""
        assert serial(daemon, authority)
        assert daemon.process.poll() is None


def test_the_command_line_trusts_the_very_certificate_of_the_daemon(daemon: RunningDaemon) -> None:
    found = command(daemon, "ps")
    assert found.returncode == 0, found.stderr
    wrong = command(daemon, "ps", "--url", daemon.url)
    assert wrong.returncode != 0
    assert "SSL_CERT_FILE" in wrong.stderr
    right = command(daemon, "ps", "--url", daemon.url, SSL_CERT_FILE=str(daemon.home / "authority.pem"))
    assert right.returncode == 0, right.stderr


def test_a_certificate_is_renewed_without_a_pause() -> None:
    with scratch_home() as home:
        mine = Authority(home)
        with serving(home, mine) as daemon:
            first, number = told(daemon), serial(daemon, mine)
            (home / "server.key").write_text("no key")
            wait_until(lambda: "certificate_refused" in log_of(daemon), "what does not fit is refused")
            assert (told(daemon), serial(daemon, mine)) == (first, number)
            assert command(daemon, "ps").returncode == 0
            mine.issue("localhost", "127.0.0.1")
            wait_until(lambda: "certificate_reloaded" in log_of(daemon), "the new one is shown")
            assert told(daemon) != first
            assert serial(daemon, mine) != number
            assert command(daemon, "ps").returncode == 0


def test_a_certificate_that_has_expired_does_not_keep_its_owner_out(authority: Authority) -> None:
    with scratch_home() as other:
        cert, key = authority.issue("localhost", into="expired", expired=True)
        with running_daemon(other, NOWHERE, {"server": {"tls_cert": str(cert), "tls_key": str(key)}}) as daemon:
            found = command(daemon, "ps")
            assert found.returncode == 0, found.stderr


def test_clients_need_a_certificate_where_an_authority_for_them_is_named(authority: Authority) -> None:
    with scratch_home() as other, serving(other, authority, tls_client_ca=str(authority.file)) as daemon:
        own = authority.both("somebody")
        with httpx.Client(verify=trusting(authority, own), trust_env=False, timeout=PATIENCE) as client:
            assert client.get(f"{daemon.url}/health").status_code == 200
        stranger = Authority(other).both("somebody")
        for context in (trusting(authority), trusting(authority, stranger)):
            with httpx.Client(verify=context, trust_env=False) as client, pytest.raises(httpx.TransportError):
                client.get(f"{daemon.url}/health")
        assert "SUPERVISOR_CLIENT_CERT" in command(daemon, "ps").stderr
        found = command(daemon, "ps", SUPERVISOR_CLIENT_CERT=str(own))
        assert found.returncode == 0, found.stderr


def test_the_files_are_checked_with_the_configuration(authority: Authority) -> None:
    cert, key = authority.issue("localhost", into="checked")
    other = authority.issue("localhost", into="other")[1]
    nothing = cert.with_name("nothing.pem")
    nothing.write_text("nothing")
    faults = {
        "tls_cert: goes with `tls_key`": {"tls_cert": str(cert)},
        "tls_client_ca: goes with `tls_cert`": {"tls_client_ca": str(cert)},
        "no such file": {"tls_cert": str(cert) + "x", "tls_key": str(key)},
        "it is not the key of the certificate": {"tls_cert": str(cert), "tls_key": str(other)},
        "holds no certificate": {"tls_cert": str(nothing), "tls_key": str(key)},
        "holds no key": {"tls_cert": str(cert), "tls_key": str(nothing)},
        "tls_client_ca": {"tls_cert": str(cert), "tls_key": str(key), "tls_client_ca": str(nothing)},
    }
    with scratch_home() as home:
        file = home / "supervisor.yaml"
        for fault, server in faults.items():
            file.write_text(json.dumps({"server": server}))
            found = checked(file)
            assert (found.returncode, fault in found.stdout + found.stderr) == (1, True), (fault, found)
        (home / "c.pem").write_bytes(cert.read_bytes())
        (home / "c.key").write_bytes(key.read_bytes())
        file.write_text(json.dumps({"server": {"tls_cert": "c.pem", "tls_key": "c.key"}}))
        assert checked(file).returncode == 0, "relative to the file"


def checked(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "supervisor", "config", "check", str(file)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.engine
def test_streams_go_through_tls_and_a_client_that_leaves_frees_its_slot(
    engine_binary: Path, talker: Path, authority: Authority
) -> None:
    cert, key = authority.issue("localhost", "127.0.0.1", into="streams")
    models = {"talker": {"file": str(talker), "parallel": 1, "ctx_size": 65536}}
    settings = {"models": models, "server": {"tls_cert": str(cert), "tls_key": str(key)}}
    said = {"model": "talker", "stream": True}
    with (
        scratch_home() as home,
        running_daemon(home, engine_binary, settings) as daemon,
        httpx.Client(base_url=daemon.url, verify=trusting(authority), trust_env=False, timeout=PATIENCE) as client,
    ):
        daemon.http = client
        hello = {**said, "messages": [{"role": "user", "content": "hello"}]}
        with client.stream("POST", "/v1/chat/completions", json=hello) as answer:
            events = "".join(answer.iter_text())
        told = [json.loads(one.removeprefix("data: ")) for one in events.split("\n\n")[:-2]]
        assert "".join(one["choices"][0]["delta"].get("content") or "" for one in told if one["choices"]) == HELLO
        assert events.endswith("data: [DONE]\n\n")
        endless = {**said, "messages": [{"role": "user", "content": "endless"}]}
        with client.stream("POST", "/v1/chat/completions", json=endless) as answer:
            arriving = answer.iter_text()  # kept: the answer is closed with it
            next(arriving)
            wait_until(lambda: daemon.busy_slots("talker") == 1, "the slot is taken")
            if sys.platform == "linux":  # elsewhere no daemon is taken over
                with httpx.Client(base_url=daemon.url, verify=trusting(authority), trust_env=False) as another:
                    assert another.post("/api/v1/restart", timeout=PATIENCE).status_code == 200
                    assert another.get("/health", timeout=PATIENCE).status_code == 200
                assert next(arriving)
                assert daemon.busy_slots("talker") == 1, "the stream goes on"
        wait_until(lambda: daemon.busy_slots("talker") == 0, "the slot is free")


def test_a_second_daemon_on_the_port_is_told_who_has_it(daemon: RunningDaemon) -> None:
    with scratch_home() as other:
        found = subprocess.run(
            [sys.executable, "-P", "-m", "supervisor", "serve", "--port", str(port_of(daemon))],
            env=environment(other, NOWHERE),
            cwd=other,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert found.returncode != 0
    assert f"--url {daemon.url}" in found.stderr
