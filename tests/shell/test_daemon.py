"""The daemon's standing on the machine."""

from __future__ import annotations

import socket

import pytest

from supervisor.daemon import listen
from supervisor.errors import AddressInUse


def test_who_learns_of_the_address_is_not_turned_away() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), 1):
        pass


def test_an_address_is_taken_from_the_start() -> None:
    with listen("127.0.0.1", 0) as listener, pytest.raises(AddressInUse, match="taken by another program"):
        listen("127.0.0.1", listener.getsockname()[1])
