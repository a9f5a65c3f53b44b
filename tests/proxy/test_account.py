"""The account of a request: how it ended, told once."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.core.history.records import LONGEST, Finished, Spent
from supervisor.errors import EngineLost, ModelNotFound
from supervisor.proxy.account import Account


def account(told: list[Finished], agent: bytes = b"agent") -> Account:
    return Account(told.append, "/p", {"type": "http", "headers": [(b"user-agent", agent)]}, None)


def test_what_goes_well_is_told_once_with_its_moments_in_order() -> None:
    told: list[Finished] = []
    with account(told, b"x" * 1000) as one:
        one.has_engine()
        one.has_first()
        first = (one._queued, one._first)
        one.has_engine()
        one.has_first()
        one.answered(200)
        one.spent(Spent(completion_tokens=3))
    (found,) = told
    assert (found.status, found.code, found.spent.completion_tokens) == (200, None, 3)
    assert (found.queued, found.first) == first
    assert found.queued is not None
    assert found.first is not None
    assert 0 <= found.queued <= found.first <= found.seconds
    assert len(found.client) == LONGEST


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ModelNotFound("no"), 404, "model_not_found"),
        (asyncio.CancelledError(), 499, "client_gone"),
        (ConnectionResetError(), 499, "client_gone"),
    ],
)
def test_an_error_goes_on_and_is_told(error: BaseException, status: int, code: str) -> None:
    told: list[Finished] = []
    with pytest.raises(type(error)), account(told):
        raise error
    assert [(one.status, one.code) for one in told] == [(status, code)]


def test_an_error_within_a_stream_leaves_its_status() -> None:
    told: list[Finished] = []
    with account(told) as one:
        one.answered(200)
        one.failed(EngineLost("gone"), in_stream=True)
        one.refused(200, "invalid_request")  # what ended the stream was told first
    assert [(one.status, one.code) for one in told] == [(200, "engine_lost")]


def test_an_engines_error_has_the_code_that_the_client_is_told() -> None:
    told: list[Finished] = []
    for refused in (None, (400, "invalid_request")):
        with account(told) as one:
            one.answered(400)
            if refused:
                one.refused(*refused)
    assert [(one.status, one.code) for one in told] == [(400, "engine_error"), (400, "invalid_request")]
