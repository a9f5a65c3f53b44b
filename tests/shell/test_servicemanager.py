"""What a service manager gives the daemon and is told, with real sockets; the manager itself is played."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

import httpx
import psutil
import pytest

from supervisor.core.environment import MANAGERS, for_builds, for_downloads, for_engines, for_python
from supervisor.errors import PassedSocketUnusable
from supervisor.system.servicemanager import ServiceManager
from tests.support.daemon import environment, scratch_home
from tests.support.patience import PATIENCE

Message: TypeAlias = dict[str, str]

# What a manager does between fork and exec: the socket becomes descriptor 3, and the variables name this very process.
_AS_A_MANAGER = """
import os, sys
fd, argv = int(sys.argv[1]), sys.argv[2:]
if fd >= 0:
    os.dup2(fd, 3)
    os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "http"}
os.environ["WATCHDOG_PID"] = str(os.getpid())
os.execv(argv[0], argv)
"""


class FakeManager:
    """The socket to which messages come; `path` goes into NOTIFY_SOCKET."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE)
        self._socket.bind("\0" + path[1:] if path.startswith("@") else path)

    def hear(self) -> Message:
        """Wait for the next message."""
        lines = self._socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def hear_of(self, name: str) -> Message:
        """Wait for the next message with this name."""
        while name not in (message := self.hear()):
            pass
        return message

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with tempfile.TemporaryDirectory(prefix="sup-") as folder, contextlib.closing(FakeManager(f"{folder}/n")) as found:
        yield found


def listening(host: str = "127.0.0.1") -> socket.socket:
    one = socket.socket()
    one.bind((host, 0))
    one.listen()
    return one


@contextlib.contextmanager
def started(
    home: Path,
    manager: FakeManager,
    passed: socket.socket | BinaryIO | None = None,
    *args: str,
    config: str = "{}",
    **env: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon started as a manager does it; ended by its pid."""
    (home / "test.yaml").write_text(config)
    serve = [sys.executable, "-P", "-m", "supervisor", "serve", "--config", str(home / "test.yaml"), *args]
    number = -1 if passed is None else passed.fileno()
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _AS_A_MANAGER, str(number), *serve],
            env=environment(home, Path("/bin/false"), NOTIFY_SOCKET=manager.path, **env),
            pass_fds=() if passed is None else (number,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=home,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture
def home() -> Iterator[Path]:
    with scratch_home() as found:
        yield found


def test_a_manager_hears_of_readiness_of_reloads_and_of_the_end(home: Path, manager: FakeManager) -> None:
    with started(home, manager, None, "--port", "0") as process:
        ready = manager.hear()
        url = json.loads((home / "endpoint.json").read_text())["url"]
        assert ready == {"READY": "1", "STATUS": f"answering at {url}"}
        assert httpx.get(f"{url}/health", trust_env=False, timeout=PATIENCE).status_code == 200
        process.send_signal(signal.SIGHUP)
        reloading = manager.hear()
        assert reloading.keys() == {"RELOADING", "MONOTONIC_USEC"}
        assert int(reloading["MONOTONIC_USEC"]) > 0
        assert manager.hear() == {"READY": "1"}
        process.terminate()
        assert manager.hear()["STOPPING"] == "1"
        assert process.wait(PATIENCE) == 0


def test_a_reload_that_is_refused_ends_for_the_manager_too(home: Path, manager: FakeManager) -> None:
    with started(home, manager, None, "--port", "0", config="server: {watch_config: false}") as process:
        manager.hear_of("READY")
        (home / "test.yaml").write_text("nonsense: 1")
        process.send_signal(signal.SIGHUP)
        manager.hear_of("RELOADING")
        assert manager.hear() == {"READY": "1"}
        assert process.poll() is None


def test_the_watchdog_is_fed_from_the_start_to_the_end(home: Path, manager: FakeManager) -> None:
    with started(home, manager, None, "--port", "0", WATCHDOG_USEC="200000") as process:
        assert manager.hear() == {"WATCHDOG": "1"}
        manager.hear_of("READY")
        assert manager.hear_of("WATCHDOG") == manager.hear_of("WATCHDOG") == {"WATCHDOG": "1"}
        assert process.poll() is None


def test_the_daemon_serves_the_socket_that_it_is_given(home: Path, manager: FakeManager) -> None:
    """A connection from before the start waits and is answered; the configured address is not used."""
    with listening() as passed:
        host, port = passed.getsockname()
        early = socket.create_connection((host, port))
        early.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        with started(home, manager, passed, config="server: {port: 1}") as process, early:
            manager.hear_of("READY")
            assert json.loads((home / "endpoint.json").read_text())["url"] == f"http://{host}:{port}"
            early.settimeout(PATIENCE)
            assert early.recv(64).startswith(b"HTTP/1.1 200 ")
            process.terminate()
            process.wait(PATIENCE)
        socket.create_connection((host, port)).close()  # it is the manager's and goes on


@pytest.mark.skipif(sys.platform != "linux", reason="a daemon is taken over on Linux alone")
def test_a_take_over_is_told_like_a_reload_and_keeps_the_socket(home: Path, manager: FakeManager) -> None:
    with listening() as passed:
        host, port = passed.getsockname()
        with started(home, manager, passed, config="server: {port: 1}") as process:
            first = manager.hear_of("READY")
            for _ in range(2):
                os.kill(process.pid, signal.SIGUSR2)
                assert manager.hear_of("RELOADING").keys() == {"RELOADING", "MONOTONIC_USEC"}
                assert manager.hear_of("READY") == first
                status = httpx.get(f"http://{host}:{port}/api/v1/status", trust_env=False, timeout=PATIENCE).json()
                assert status["pid"] == process.pid


def test_a_socket_that_others_reach_needs_a_key_whatever_the_configuration_says(
    home: Path, manager: FakeManager
) -> None:
    with listening("0.0.0.0") as passed:
        with started(home, manager, passed, config="server: {host: 127.0.0.1}") as process:
            assert process.wait(PATIENCE) == 1
        assert b"[insecure_bind]" in (home / "log").read_bytes()
        with started(home, manager, passed, SUPERVISOR_API_KEY="a-key-of-some-length"):
            manager.hear_of("READY")


def unix_socket(home: Path) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.bind(str(home / "s"))
    one.listen()
    return one


def datagram_socket(_home: Path) -> socket.socket:
    one = socket.socket(type=socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    return one


def connected_socket(_home: Path) -> socket.socket:
    """What comes with `Accept=yes`."""
    with listening() as listener:
        return socket.create_connection(listener.getsockname())


def no_socket(home: Path) -> BinaryIO:
    return (home / "file").open("wb")


@pytest.mark.parametrize("make", [unix_socket, datagram_socket, connected_socket, no_socket])
def test_a_socket_of_another_kind_is_refused(
    home: Path, manager: FakeManager, make: Callable[[Path], socket.socket | BinaryIO]
) -> None:
    with make(home) as passed, started(home, manager, passed) as process:
        assert process.wait(PATIENCE) == 1
    assert b"[passed_socket_unusable]" in (home / "log").read_bytes()


def test_a_background_daemon_is_not_the_one_that_the_manager_started(home: Path, manager: FakeManager) -> None:
    """`start`, run by a service, gives the daemon none of the manager's variables."""
    command = [sys.executable, "-P", "-m", "supervisor"]
    (home / "test.yaml").write_text("server: {port: 0}")
    env = environment(home, Path("/bin/false"), NOTIFY_SOCKET=manager.path, SUPERVISOR_CONFIG=str(home / "test.yaml"))
    try:
        subprocess.run([*command, "start"], env=env, check=True, capture_output=True, timeout=PATIENCE)
        pid = json.loads((home / "endpoint.json").read_text())["pid"]
        assert not MANAGERS & _environment_of(pid).keys()
    finally:
        subprocess.run([*command, "stop"], env=env, check=True, capture_output=True, timeout=PATIENCE)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract addresses")
def test_a_manager_at_an_abstract_address_is_told() -> None:
    with contextlib.closing(FakeManager(f"@llama-supervisor-test-{os.getpid()}")) as manager:
        ServiceManager({"NOTIFY_SOCKET": manager.path}).tell("READY=1")
        assert manager.hear() == {"READY": "1"}


@pytest.mark.parametrize(
    "address", ["", "relative", "/no/such/socket", "@nobody-listens-here", "vsock:2:1", "/" + 200 * "x"]
)
def test_who_cannot_be_told_is_no_fault_of_ours(address: str) -> None:
    ServiceManager({"NOTIFY_SOCKET": address}).tell("READY=1")


def test_a_full_socket_does_not_hold_the_loop_up(manager: FakeManager) -> None:
    """Nobody reads: the messages beyond what the socket holds are dropped, and no call waits."""
    us = ServiceManager({"NOTIFY_SOCKET": manager.path})
    for _ in range(2000):
        us.tell("WATCHDOG=1")
    assert manager.hear() == {"WATCHDOG": "1"}


def test_the_loop_itself_feeds_the_watchdog() -> None:
    """So a loop that hangs does not."""

    class Noting(ServiceManager):
        def tell(self, *lines: str) -> None:
            assert asyncio.get_running_loop()
            fed.append(threading.get_ident())
            if len(fed) == 2:
                twice.set()

    async def until_fed_twice() -> None:
        feeding = asyncio.ensure_future(Noting({"WATCHDOG_USEC": "2000"}).watched())
        await asyncio.wait_for(twice.wait(), PATIENCE)
        feeding.cancel()

    fed: list[int] = []
    twice = asyncio.Event()
    asyncio.run(until_fed_twice())
    assert set(fed) == {threading.get_ident()}


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_watchdog_of_ours_is_known_by_its_variables(variables: dict[str, str], seconds: float | None) -> None:
    assert ServiceManager(variables).watchdog_seconds == (None if seconds is None else pytest.approx(seconds))


def test_without_a_watchdog_there_is_nothing_to_do() -> None:
    asyncio.run(asyncio.wait_for(ServiceManager().watched(), PATIENCE))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "x", "LISTEN_PID": str(os.getpid())},
    ],
)
def test_sockets_of_others_are_left_alone(variables: dict[str, str]) -> None:
    assert ServiceManager(variables).listener() is None


def test_two_sockets_are_refused_with_what_to_do() -> None:
    with pytest.raises(PassedSocketUnusable, match="passed 2 sockets; give its unit one ListenStream="):
        ServiceManager({"LISTEN_FDS": "2", "LISTEN_PID": str(os.getpid())}).listener()


def test_its_variables_are_taken_out_of_the_environment() -> None:
    env = dict.fromkeys(MANAGERS, "1") | {"PATH": "/bin"}
    assert ServiceManager.taken(env).variables.keys() == MANAGERS
    assert env == {"PATH": "/bin"}


@pytest.mark.parametrize("chosen", [for_engines, for_python, for_downloads, for_builds])
def test_no_child_gets_them(chosen: Callable[[dict[str, str]], dict[str, str]]) -> None:
    assert chosen(dict.fromkeys(MANAGERS, "1") | {"PATH": "/bin"}) == {"PATH": "/bin"}


def _environment_of(pid: int) -> dict[str, str]:
    return psutil.Process(pid).environ()
