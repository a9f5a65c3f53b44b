"""The daemon proves itself before it is told anything: whoever else sits at its port learns nothing."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from supervisor.cli.client import Client
from supervisor.cli.daemon import read_endpoint
from supervisor.errors import DaemonUnproven, DaemonUnreachable
from supervisor.system.owned import own_folder
from supervisor.system.paths import places
from supervisor.system.proof import PROOF_HEADER, is_proven, new_challenge, new_secret, prove
from tests.cli.conftest import Cli
from tests.fakes.fake_daemon import FakeDaemon

KEY = "a-key-that-nobody-else-may-see"
Answer = Callable[[bytes], bytes]


class Impostor:
    """Took the port of a daemon; `heard` is all that it was ever sent."""

    def __init__(self, answer: Answer) -> None:
        self.heard = b""
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(65_536):
                    self.heard += data
                    answer = self._answer(data)
                    if not answer:
                        break
                    connection.sendall(answer)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def impostor(answer: Answer) -> Iterator[Impostor]:
    found = Impostor(answer)
    try:
        yield found
    finally:
        found.close()


def ok(*headers: str, body: str = '{"status": "ok"}') -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


def write_endpoint(state: Path, url: str) -> None:
    found = {"url": url, "pid": os.getpid(), "secret": new_secret(), "version": "0.1.0", "started_at": 0}
    (own_folder(state) / "endpoint.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: ok(),
        lambda _: ok(f"{PROOF_HEADER}: {'0' * 64}"),
        lambda _: ok(f"{PROOF_HEADER}: \xff"),
        lambda _: ok("Connection: close"),
        lambda _: ok(body=json.dumps({"pid": os.getpid(), "version": "0.1.0", "models": []})),
        lambda _: b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        lambda _: b"SSH-2.0-OpenSSH\r\n",
        lambda _: b"",
    ],
    ids=["no proof", "a wrong one", "no text", "closes", "a status", "asks for the key", "no HTTP", "hangs up"],
)
def test_an_impostor_is_told_nothing(cli: Cli, answer: Answer) -> None:
    with impostor(answer) as found:
        write_endpoint(cli.state, found.url)
        shown = Cli(cli.folder, SUPERVISOR_API_KEY=KEY)("ps")
        assert shown.code != 0
        assert b"/health" in found.heard
        assert b"/api" not in found.heard
        assert KEY.encode() not in found.heard
        assert b"authorization" not in found.heard.lower()


def test_a_proof_of_another_port_counts_for_nothing() -> None:
    with FakeDaemon(key=KEY) as daemon:

        def pass_on(data: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", int(daemon.url.rpartition(":")[2]))) as there:
                there.sendall(data)
                return there.recv(65_536)

        with impostor(pass_on) as found, pytest.raises(DaemonUnproven):
            Client(found.url, KEY, daemon.secret).get("/api/v1/status")
        assert KEY.encode() not in found.heard
        assert Client(daemon.url, KEY, daemon.secret).get("/api/v1/status")["pid"] == daemon.pid


def test_a_url_that_the_user_gives_gets_the_users_key(cli: Cli) -> None:
    with FakeDaemon(key=KEY) as daemon:
        assert cli("ps", "--url", daemon.url, "--api-key", KEY).code == 0


def test_a_proof_is_of_one_secret_one_challenge_and_one_port() -> None:
    secret, challenge = new_secret(), new_challenge()
    answer = prove(secret, challenge, 8686)
    assert is_proven(secret, challenge, 8686, answer)
    assert not is_proven(secret, challenge, 8687, answer)
    assert not is_proven(new_secret(), challenge, 8686, answer)
    assert not is_proven(secret, new_challenge(), 8686, answer)
    assert not is_proven(secret, challenge, 8686, None)
    assert prove(secret, "x" * 129, 8686) is None


def test_an_endpoint_file_of_another_user_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes the file knows its secret: in a shared temp folder that may be anybody."""
    where = places({"SUPERVISOR_HOME": str(tmp_path)})
    where.endpoint_file.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1, "secret": "theirs"}))
    assert read_endpoint(where) is not None
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    assert read_endpoint(where) is None
    monkeypatch.setattr("os.getuid", lambda: 0)
    assert read_endpoint(where) is not None  # root looks after others' daemons


def test_an_endpoint_file_that_is_no_plain_file_or_no_sense_is_none(tmp_path: Path) -> None:
    """Nor does it keep anybody waiting, root neither."""
    where = places({"HOME": str(tmp_path), "SUPERVISOR_HOME": str(tmp_path)})
    where.endpoint_file.write_text('{"url": "http://127.0.0.1:1", "pid": 1e999, "secret": "s"}')
    assert read_endpoint(where) is None
    where.endpoint_file.unlink()
    os.mkfifo(where.endpoint_file)
    assert read_endpoint(where) is None


def test_a_program_that_never_comes_to_its_answer_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its lines arrives in time, and no step of reading them ends the call."""
    monkeypatch.setattr("supervisor.cli.client.ANSWER_SECONDS", 0.2)
    endless = b"HTTP/1.1 100 Continue\r\n\r\n" * 1000

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    while True:
                        connection.sendall(endless)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(DaemonUnreachable, match="did not answer"):
            Client(url, KEY, new_secret()).get("/api/v1/status")
