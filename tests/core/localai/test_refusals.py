"""Errors and models as LocalAI understands them."""

from __future__ import annotations

import pytest

from supervisor.core.localai.loaded import Loaded, Models
from supervisor.core.localai.refusals import MOST_TEXT, status_of, text_of
from supervisor.core.localai.watching import INTERVAL, WATCH, watch_seconds
from supervisor.errors import (
    DaemonUnproven,
    DaemonUnreachable,
    InvalidRequest,
    ModelDoesNotFit,
    ModelNotFound,
    ModelNotLoaded,
    QueueFull,
    RemoteError,
    SupervisorError,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("x"), "INVALID_ARGUMENT"),
        (QueueFull("x"), "RESOURCE_EXHAUSTED"),
        (ModelDoesNotFit("x"), "RESOURCE_EXHAUSTED"),
        (ModelNotLoaded("x"), "FAILED_PRECONDITION"),
        (ModelNotFound("model identity mismatch: x"), "NOT_FOUND"),
        (DaemonUnreachable("x"), "UNAVAILABLE"),
        (DaemonUnproven("x"), "UNAVAILABLE"),
        (SupervisorError("x"), "INTERNAL"),
        (RemoteError("x", code="model_not_found", status=404), "FAILED_PRECONDITION"),
        (RemoteError("x", code="unauthorized", status=401), "INTERNAL"),
        (RemoteError("x", code="not_supported_by_engine", status=501), "UNIMPLEMENTED"),
        (RemoteError("x", code="context_length_exceeded", status=400), "INVALID_ARGUMENT"),
        (RemoteError("x", code="media_too_large"), "INVALID_ARGUMENT"),  # in the middle of a stream
        (RemoteError("x", code="engine_lost"), "INTERNAL"),
        (RemoteError("x", code="queue_full"), "RESOURCE_EXHAUSTED"),
    ],
)
def test_every_error_has_a_status(error: SupervisorError, status: str) -> None:
    assert status_of(error) == status


def test_the_text_begins_with_the_code_and_ends_with_the_childs_last_line() -> None:
    error = RemoteError("It failed.", code="model_file_broken", log_lines=("one", "two"))
    assert text_of(error) == "model_file_broken: It failed.\ntwo"
    assert len(text_of(InvalidRequest("x" * 100_000))) == MOST_TEXT


def test_a_request_means_the_model_of_its_name_or_the_last_one() -> None:
    models = Models()
    with pytest.raises(ModelNotLoaded):
        models.meant("a")
    a, b = Loaded("a", "id-a", is_ours=True), Loaded("b", "id-b", is_ours=True)
    models.add(a)
    models.add(b)
    assert [models.meant(name) for name in ("a", "b", "")] == [a, b, b]
    with pytest.raises(ModelNotFound, match="model identity mismatch: loaded 'a', 'b', requested 'c'"):
        models.meant("c")
    models.add(a)
    assert models.meant("") == a
    models.drop(a)
    assert models.all == (b,)


def test_a_model_that_was_loaded_without_a_name_answers_to_every_name() -> None:
    models = Models()
    models.add(Loaded("", "id", is_ours=True))
    assert models.meant("a").id == models.meant("").id == "id"


def test_a_model_that_is_loaded_again_stays_the_backends() -> None:
    models = Models()
    models.add(Loaded("a", "id", is_ours=True))
    models.add(Loaded("a", "id", is_ours=False))
    assert models.meant("a").is_ours
    models.add(Loaded("a", "other", is_ours=False))
    assert not models.meant("a").is_ours


@pytest.mark.parametrize(
    ("env", "parent", "seconds"),
    [
        ({}, 7, 2.0),
        ({}, 1, None),
        ({WATCH: "off"}, 7, None),
        ({WATCH: " False "}, 7, None),
        ({WATCH: "yes"}, 7, 2.0),
        ({INTERVAL: "500ms"}, 7, 0.5),
        ({INTERVAL: "3s"}, 7, 3.0),
        ({INTERVAL: "1m"}, 7, 60.0),
        ({INTERVAL: "1.5"}, 7, 1.5),
        ({INTERVAL: "0s"}, 7, 2.0),
        ({INTERVAL: "-1s"}, 7, 2.0),
        ({INTERVAL: "soon"}, 7, 2.0),
    ],
)
def test_the_parent_is_watched_as_localai_says(env: dict[str, str], parent: int, seconds: float | None) -> None:
    assert watch_seconds(env, parent) == seconds
