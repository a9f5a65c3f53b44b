"""The daemon's standing on the machine."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from supervisor.daemon.lock import allow_many_files, daemon_lock, file_shares, listen
from supervisor.errors import AddressInUse
from supervisor.system.paths import places
from tests.support.patience import PATIENCE


def test_who_learns_of_the_address_is_not_turned_away() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), PATIENCE):
        pass


def test_an_address_is_taken_from_the_start() -> None:
    with listen("127.0.0.1", 0) as listener, pytest.raises(AddressInUse, match="taken by another program"):
        listen("127.0.0.1", listener.getsockname()[1])


def test_a_shells_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        allow_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("doors", [1, 2])
@pytest.mark.parametrize("files", [16, 256, 1024, 4096, 10_240])
def test_connections_leave_files_for_engines_and_management(files: int, doors: int) -> None:
    shares = file_shares(files, doors)
    assert shares.connections >= 1
    assert files - doors * (2 * shares.connections + shares.backlog) >= min(512, files // 4)


@contextmanager
def program(answer: Iterable[bytes]) -> Iterator[tuple[str, int]]:
    """A program on a port, which says the same to everybody until they leave."""
    pieces = list(answer)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65_536)
                    for piece in pieces if len(pieces) > 1 else cycle(pieces):
                        connection.sendall(piece)

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()
    finally:
        listener.close()


def test_a_program_on_the_port_has_few_words_of_one_line() -> None:
    told = {"pid": "1\x1b]0;x\x07\n2026 [info] ready", "version": "v" * 100_000, "models": []}
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    with program((head, json.dumps(told, ensure_ascii=False).encode())) as place, pytest.raises(AddressInUse) as caught:
        listen(*place)
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()


def test_a_program_on_the_port_that_never_ends_its_answer_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.daemon.lock._ANSWER_SECONDS", 0.2)
    with program((b"HTTP/1.1 100 Continue\r\n\r\n",)) as place, pytest.raises(AddressInUse, match="another program"):
        listen(*place)


def test_nobody_else_can_open_the_file_that_is_locked(tmp_path: Path) -> None:
    """Whoever may read a file can lock it, and so keep a daemon from starting."""
    where = places({"HOME": str(tmp_path), "SUPERVISOR_HOME": str(tmp_path)})
    before = os.umask(0)
    try:
        with daemon_lock(where):
            assert stat.S_IMODE(where.daemon_lock.stat().st_mode) == 0o600
        where.daemon_lock.chmod(0o644)
        with daemon_lock(where):
            assert stat.S_IMODE(where.daemon_lock.stat().st_mode) == 0o600
    finally:
        os.umask(before)
