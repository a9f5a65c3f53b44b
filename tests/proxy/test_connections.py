"""Who loses its place for a newcomer: whoever has let us wait longest."""

from __future__ import annotations

import pytest

from supervisor.api.errors import render_error
from supervisor.proxy.connections import ClientLimits, Connections, Place

LIMITS = ClientLimits(connections=2, head=1024, fields=10, head_s=1, body_s=1, idle_s=1)


class Client:
    """A connection that only notes that it was dropped."""

    held_back = False

    def __init__(self) -> None:
        self.dropped = False

    def part(self) -> None:
        """It stays."""

    def drop(self) -> None:
        self.dropped = True


class Bench:
    """Connections at a clock of their own; two that owe the rest of a body have all places."""

    def __init__(self) -> None:
        self.now = 0.0
        self.connections = Connections(lambda: LIMITS, render_error, lambda: self.now)
        self.first, self.second = Client(), Client()
        for one in (self.first, self.second):
            assert self.connections.enter(one) is Place.FULL
            self.connections.works(one)
            self.connections.owes(one)
            self.now += 1


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_that_sends_nothing_of_its_body_loses_its_place(bench: Bench) -> None:
    bench.now += 10
    assert bench.connections.enter(Client()) is Place.FULL
    assert (bench.first.dropped, bench.second.dropped) == (True, False)


def test_one_that_has_just_begun_keeps_it(bench: Bench) -> None:
    assert bench.connections.enter(Client()) is Place.MANAGEMENT
    assert not bench.first.dropped


def test_a_piece_counts_as_long_as_a_beginning(bench: Bench) -> None:
    bench.now += 10
    bench.connections.owes(bench.first)
    assert bench.connections.enter(Client()) is Place.FULL
    assert (bench.first.dropped, bench.second.dropped) == (False, True)


def test_one_that_is_not_read_from_is_not_to_blame(bench: Bench) -> None:
    bench.first.held_back = True
    bench.now += 10
    assert bench.connections.enter(Client()) is Place.FULL
    assert (bench.first.dropped, bench.second.dropped) == (False, True)


def test_one_whose_request_is_there_is_at_work(bench: Bench) -> None:
    for one in (bench.first, bench.second):
        bench.connections.owes_nothing(one)
    bench.now += 1000
    assert bench.connections.enter(Client()) is Place.MANAGEMENT


def test_management_that_owes_its_body_loses_its_place_however_much_it_sends(bench: Bench) -> None:
    reserve = [Client() for _ in range(32)]
    for one in reserve:
        assert bench.connections.enter(one) is Place.MANAGEMENT
        bench.connections.works(one)
        bench.connections.owes(one)
    bench.connections.owes(reserve[0])
    bench.connections.owes_nothing(reserve[1])
    for _ in reserve[1:]:
        assert bench.connections.enter(Client()) is Place.MANAGEMENT
    assert [one.dropped for one in reserve] == [True, False, *[True] * 30]
