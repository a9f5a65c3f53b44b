"""A request as a trace: its parts follow each other, and what is not known is left out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from supervisor.core.history.records import Finished, Spent
from supervisor.core.history.spans import Loaded, Part, attributes_of, error_of, name_of, parts_of

AT = 1000.0


def record(
    queued: float | None = 1.0,
    first: float | None = 3.0,
    *,
    model: str | None = "m",
    status: int = 200,
    code: str | None = None,
    spent: Spent | None = None,
) -> Finished:
    """A request of ten seconds."""
    told = (AT, "req_1", "/v1/chat/completions", model, None, "agent", True, status, code, 10.0, queued, first)
    return Finished(*told, spent or Spent())


def moments(parts: Iterator[Part]) -> list[tuple[str, float, float]]:
    return [(one.name, one.began - AT, one.ended - AT) for one in parts]


@pytest.mark.parametrize(
    ("queued", "first", "load", "expected"),
    [
        (1, 3, None, [("queue", 0, 1), ("prefill", 1, 3), ("decode", 3, 10)]),
        (1, None, None, [("queue", 0, 1), ("prefill", 1, 10)]),
        (None, None, None, [("queue", 0, 10)]),
        (4, 6, Loaded(AT + 1, AT + 3), [("queue", 0, 4), ("load", 1, 3), ("prefill", 4, 6), ("decode", 6, 10)]),
        (4, 6, Loaded(AT - 5, AT + 3), [("queue", 0, 4), ("load", 0, 3), ("prefill", 4, 6), ("decode", 6, 10)]),
        (4, 6, Loaded(AT - 5, AT - 1), [("queue", 0, 4), ("prefill", 4, 6), ("decode", 6, 10)]),
        (4, 6, Loaded(AT + 5, AT + 7), [("queue", 0, 4), ("prefill", 4, 6), ("decode", 6, 10)]),
        (None, None, Loaded(AT + 2), [("queue", 0, 10), ("load", 2, 10)]),
        (None, None, Loaded(AT + 2, AT + 99), [("queue", 0, 10), ("load", 2, 10)]),
    ],
)
def test_parts(
    queued: float | None, first: float | None, load: Loaded | None, expected: list[tuple[str, float, float]]
) -> None:
    assert moments(parts_of(record(queued, first), load)) == expected


def test_no_part_is_turned_around_whatever_the_moments_are() -> None:
    """Clocks are read at different moments, so a first token may seem to be there before its engine."""
    for queued in (0.0, 5.0, 10.5):
        for first in (0.0, 5.0, 11.0):
            parts = list(parts_of(record(queued, first), Loaded(AT + 3, AT + 4)))
            assert all(one.began <= one.ended for one in parts)
            line = [one for one in parts if one.name != "load"]
            assert all(one.ended == other.began for one, other in pairwise(line))


def test_a_request_for_no_model_has_no_parts_and_its_own_name() -> None:
    one = record(None, None, model=None, status=404, code="model_not_found")
    assert list(parts_of(one, None)) == []
    assert name_of(one, "") == "POST /v1/chat/completions"
    assert name_of(record(), "chat") == "chat m"


def test_what_is_not_known_is_left_out() -> None:
    told = attributes_of(record(spent=Spent(completion_tokens=0, finish="stop")), "chat")
    assert told["gen_ai.usage.output_tokens"] == 0
    assert told["gen_ai.response.finish_reasons"] == ("stop",)
    assert not {"gen_ai.usage.input_tokens", "error.type", "llama_supervisor.key"} & told.keys()
    assert not [name for name in attributes_of(record(), "") if name.startswith("gen_ai.operation")]


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (200, None, None),
        (404, "model_not_found", None),
        (499, "client_gone", None),
        (200, "engine_lost", "engine_lost"),
        (503, "queue_full", "queue_full"),
    ],
)
def test_what_the_client_is_to_blame_for_is_no_error(status: int, code: str | None, error: str | None) -> None:
    assert error_of(record(status=status, code=code)) == error
