"""What the holder of a key is told, and whose tokens an answer's are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from supervisor.core.requests.keys import Key, KeyRules, digest_of
from supervisor.core.requests.scopes import Scope
from supervisor.core.stream.meter import SoFar
from supervisor.engines.client import EngineResponse
from supervisor.errors import Forbidden, ModelDoesNotFit, QueueFull, SupervisorError
from supervisor.proxy.account import Account, ignored
from supervisor.proxy.metered import NO_ROOM, check_key, metered, told
from supervisor.service.status import LoadError
from tests.support.statuses import status_of

FULL = ModelDoesNotFit("It would fit once secret-model left, which cannot leave now.")


def key(*models: str) -> Key:
    return Key(KeyRules("k", frozenset({Scope.INFER}), models), digest_of(b"k"), 0.0)


def test_why_there_is_no_room_names_no_model_that_a_key_does_not_see() -> None:
    shown = told(key("open-*"), FULL)
    assert (shown.message, shown.code, shown.status) == (NO_ROOM, "does_not_fit", 507)


@pytest.mark.parametrize("holder", [None, key()])
@pytest.mark.parametrize("error", [FULL, QueueFull("Many wait.")])
def test_who_sees_all_models_is_told_everything(holder: Key | None, error: SupervisorError) -> None:
    assert told(holder, error) is error


def test_other_errors_are_told_as_they_are() -> None:
    error = QueueFull("Many wait.")
    assert told(key("open-*"), error) is error


def test_a_status_by_itself_names_no_other_model() -> None:
    status = replace(
        status_of("open-model"),
        plan={"why": ["Engine 2 (secret-model) must leave first."], "ctx_size": 5},
        error=LoadError("does_not_fit", FULL.message, ("secret-model",)),
    )
    shown = status.by_itself()
    assert "secret" not in str(shown.to_json())
    assert shown.plan == {"why": [], "ctx_size": 5}
    other = LoadError("out_of_memory", "CUDA0 is full.", ("line",))
    assert replace(status, error=other).by_itself().error == other


def test_an_answer_of_which_nothing_was_heard_costs_nothing() -> None:
    held = key()
    account = Account(ignored, "/v1/chat/completions", {"headers": []}, held)
    with pytest.raises(KeyError), metered(account, {}):
        raise KeyError
    assert held.usage.tokens == 0


def test_a_key_is_asked_for_the_scope_of_the_engine_s_path() -> None:
    check_key(None, "POST", "/slots/0")
    check_key(key(), "POST", "/v1/chat/completions")
    with pytest.raises(Forbidden):
        check_key(key(), "POST", "/slots/0")


class _Upstream:
    """An engine's answer of which the test says what is heard."""

    status = 200
    content_type = "text/event-stream"

    def heard_by(self, hear: Callable[[bytes], None]) -> _Upstream:
        self.hear = hear
        return self


def test_what_has_come_is_told_with_the_time_since_the_first_token() -> None:
    upstream = _Upstream()
    with metered(Account(ignored, "/v1/chat/completions", {"headers": []}, None), {}) as meter:
        assert meter.so_far() == SoFar()
        meter.hears(cast("EngineResponse", upstream))
        upstream.hear(b'data: {"prompt_progress":{"total":9,"processed":4}}\n\n')
        assert meter.so_far() == SoFar(prompt_tokens=4)
        for _ in range(3):
            upstream.hear(b'data: {"choices":[]}\n\n')
        before = meter.so_far()
        assert (before.prompt_tokens, before.completion_tokens) == (4, 3)
        assert 0 < before.seconds < meter.so_far().seconds
