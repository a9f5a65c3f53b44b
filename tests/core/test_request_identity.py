"""A client's own request id is taken where it can be repeated anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.requests.identity import HEADER, MOST, given_id


@pytest.mark.parametrize(
    "own", ["a", "7", "req_0123", "0d1b2c3d-4e5f-6789", "Root=1-67891233-abc", "a.b:c+d@e~f=", "x" * MOST]
)
def test_a_well_formed_id_is_kept(own: str) -> None:
    assert given_id([(b"host", b"a"), (HEADER, own.encode())]) == own


@pytest.mark.parametrize(
    "odd", ["", " ", "-a", ".", "..", "a b", "a/b", "a\tb", "a,b", "a;b", 'a"b', "a%41", "ä", "x" * (MOST + 1)]
)
def test_any_other_is_not(odd: str) -> None:
    assert given_id([(HEADER, odd.encode())]) is None


def test_one_of_several_is_not_chosen() -> None:
    assert given_id([(HEADER, b"a"), (HEADER, b"b")]) is None
    assert given_id([(b"request-id", b"a")]) is None


@given(st.binary(max_size=MOST + 2))
def test_what_is_kept_needs_no_escape_anywhere(value: bytes) -> None:
    kept = given_id([(HEADER, value)])
    if kept is not None:
        assert kept.encode() == value
        assert kept.isascii()
        assert kept.isprintable()
        assert not set(kept) & set(" /?#%\\\"'<>&,;")
