"""The daemon's standing on the machine."""

from __future__ import annotations

import resource
import socket

import pytest

from supervisor.daemon.lock import allow_many_files, file_shares, listen
from supervisor.errors import AddressInUse
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
