"""When a NATS server that decides nothing is left."""

from __future__ import annotations

from supervisor.core.cluster.directory import CLAIM_S, RENEW_S
from supervisor.core.cluster.trust import ASK_S, LEAST_S, MOST_S, Trust


def test_a_server_that_decides_is_never_left() -> None:
    trust = Trust()
    for now in range(0, 1000, 10):
        trust.note(now, decides=True)
        assert not trust.ends(now + 9.9)


def test_one_that_has_decided_nothing_for_long_is_left_before_claims_end() -> None:
    trust = Trust()
    trust.note(0.0, decides=True)
    for now in (RENEW_S, RENEW_S + 3.0, RENEW_S + 6.0):
        trust.note(now, decides=False)
        assert not trust.ends(now)
    assert trust.ends(RENEW_S + LEAST_S)
    assert RENEW_S + LEAST_S < CLAIM_S - RENEW_S


def test_a_pause_is_borne() -> None:
    trust = Trust()
    trust.note(0.0, decides=False)
    trust.note(LEAST_S - 0.1, decides=True)
    trust.note(LEAST_S, decides=False)
    assert not trust.ends(LEAST_S + 0.1)


def test_the_next_server_begins_anew() -> None:
    trust = Trust()
    trust.note(0.0, decides=False)
    trust.connected()
    assert not trust.ends(1000.0)


def test_where_no_server_decides_each_is_given_more_time_until_one_does() -> None:
    trust, now, waited = Trust(), 0.0, []
    for _ in range(5):
        since = now
        trust.note(now, decides=False)
        while not trust.ends(now):
            now += 1.0
        waited.append(now - since)
    assert waited == [LEAST_S, 2 * LEAST_S, 4 * LEAST_S, MOST_S, MOST_S]
    trust.note(now, decides=True)
    trust.note(now, decides=False)
    assert trust.ends(now + LEAST_S)


def test_it_is_asked_where_nothing_is_known_of_late_and_while_it_fails() -> None:
    trust = Trust()
    assert trust.is_to_be_asked(0.0)
    trust.note(0.0, decides=True)
    assert not trust.is_to_be_asked(ASK_S - 0.1)
    assert trust.is_to_be_asked(ASK_S)
    trust.note(ASK_S, decides=False)
    assert trust.is_to_be_asked(ASK_S + 0.1)
