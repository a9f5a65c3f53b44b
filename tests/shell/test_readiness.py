"""What is missing at the start, from the states that a model goes through."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from supervisor.core.models.registry import ModelEntry, Registry, Source
from supervisor.core.schedule.events import Failure
from supervisor.core.schedule.lifecycle import EngineState
from supervisor.core.schedule.view import ModelView
from supervisor.errors import NotReady, ShuttingDown
from supervisor.pool.pool import Pool
from supervisor.service.readiness import Readiness

REGISTRY = Registry(ModelEntry(name, Source.FILE, f"/{name}.gguf") for name in ("a", "b"))
READY = ModelView(EngineState.READY, 1, 0, 0, None)
FAILED = Failure("out_of_memory", "no room")


def readiness(view: ModelView, *, stopping: Callable[[], bool] = lambda: False) -> Readiness:
    """Of a daemon whose model `a` is so, and whose `b` is ready."""
    pool = SimpleNamespace(status=lambda model: SimpleNamespace(view=view if model == "a" else READY))
    return Readiness(REGISTRY, cast(Pool, pool), stopping)


@pytest.mark.parametrize(
    ("view", "state"),
    [
        (READY, None),
        (ModelView(EngineState.READY, 1, 0, 0, None, wanted=True), None),
        (ModelView(None, None, 0, 0, None, wanted=True), "waiting"),
        (ModelView(EngineState.LOADING, 1, 0, 0, None, wanted=True), "loading"),
        (ModelView(EngineState.LOADING, 1, 0, 0, None), None),
        (ModelView(EngineState.STOPPED, None, 0, 0, None), None),
        (ModelView(EngineState.BACKOFF, None, 0, 0, FAILED), "failed: out_of_memory"),
        (ModelView(EngineState.LOADING, 1, 0, 0, FAILED), "failed: out_of_memory"),
        (ModelView(EngineState.READY, 1, 0, 0, FAILED), None),
    ],
)
def test_what_is_missing(view: ModelView, state: str | None) -> None:
    asked = readiness(view)
    asked.begin(["a", "b", "gone"])
    assert asked.missing() == ({} if state is None else {"a": state})


def test_it_is_not_ready_before_the_models_of_the_start_were_asked_for() -> None:
    asked = readiness(READY)
    with pytest.raises(NotReady, match="starting"):
        asked.check(named=True)
    asked.begin([])
    asked.check(named=True)


def test_names_are_told_only_where_they_may_be() -> None:
    asked = readiness(ModelView(EngineState.LOADING, 1, 0, 0, None, wanted=True))
    asked.begin(["a", "b"])
    with pytest.raises(NotReady, match=r"1 of 2 .*: a \(loading\)\."):
        asked.check(named=True)
    with pytest.raises(NotReady) as refused:
        asked.check(named=False)
    assert "(loading)" not in refused.value.message


def test_a_stopping_daemon_is_not_ready() -> None:
    asked = readiness(READY, stopping=lambda: True)
    asked.begin([])
    with pytest.raises(ShuttingDown):
        asked.check(named=False)
