"""Records of requests that have ended: their speeds, questions about them, and what they come to in sum."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from supervisor.core.history.questions import Sample, Wanted, percentiles, summary
from supervisor.core.history.records import Finished, LoadRecord, Spent

SPENT = Spent(prompt_tokens=25, cached_tokens=5, completion_tokens=8, prompt_ms=10.0, predicted_ms=40.0, finish="stop")


def sample(at: float, model: str | None = "m", code: str | None = None, **more: float | None) -> Sample:
    figures: dict[str, float | None] = {"seconds": 1.0, "queued": 0.5, "first": 0.75, "predicted_ms": 100.0, **more}
    seconds = figures["seconds"] or 0.0
    return Sample(at, model, code, seconds, figures["queued"], figures["first"], 10, 2, 5, figures["predicted_ms"])


def test_speeds_are_those_of_the_engines_own_time() -> None:
    assert SPENT.prompt_tokens_per_second == pytest.approx(2000.0)
    assert SPENT.tokens_per_second == pytest.approx(200.0)


@pytest.mark.parametrize(
    "spent",
    [Spent(), Spent(5, 5, 0, 10.0, 10.0), Spent(5, 0, 5, 0.0, 0.0), Spent(5, 9, 0, 1.0, 1.0), Spent(5, 0, 5)],
    ids=["nothing is told", "all from the cache", "no time", "more cached than there are", "no times"],
)
def test_no_speed_where_nothing_was_read_or_no_time_is_told(spent: Spent) -> None:
    assert spent.prompt_tokens_per_second is None
    assert spent.tokens_per_second is None


def test_a_record_for_programs_is_flat() -> None:
    one = Finished(1.0, "id", "/p", "m", "bot", "agent", True, 200, None, 2.0, 0.5, 0.75, SPENT, 3)
    told = one.to_json()
    assert told["calls"] == 3
    assert told["cached_tokens"] == 5
    assert told["tokens_per_second"] == SPENT.tokens_per_second
    assert not any(isinstance(value, dict) for value in told.values())
    assert LoadRecord(1.0, "m", 2, "engine_start").to_json()["event"] == "engine_start"


def test_no_filter_is_no_condition() -> None:
    assert Wanted().conditions() == ("", [])


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Wanted(model="a"), [1, 2]),
        (Wanted(model="a", status=500), [2]),
        (Wanted(code="boom"), [2]),
        (Wanted(key="bot", path="/p"), [3]),
        (Wanted(since=2.0), [2, 3]),
        (Wanted(until=2.0), [1]),
        (Wanted(since=2.0, until=2.0), []),
        (Wanted(before=3), [1, 2]),
        (Wanted(model="' OR 1=1 --"), []),
    ],
)
def test_conditions_are_those_of_sql(wanted: Wanted, ids: list[int]) -> None:
    table = sqlite3.connect(":memory:")
    table.execute("CREATE TABLE t (id, at, model, key, path, status, code)")
    rows = [(1, 1.0, "a", None, "/p", 200, None), (2, 2.0, "a", None, "/p", 500, "boom")]
    table.executemany("INSERT INTO t VALUES (?,?,?,?,?,?,?)", [*rows, (3, 3.0, "b", "bot", "/p", 200, None)])
    where, values = wanted.conditions()
    assert [row[0] for row in table.execute(f"SELECT id FROM t{where} ORDER BY id", values)] == ids
    table.close()


def test_percentiles_are_values_that_so_many_do_not_exceed() -> None:
    assert percentiles([]) is None
    assert percentiles([7.0]) == {"p50": 7.0, "p90": 7.0, "p99": 7.0}
    assert percentiles([2.0, 1.0]) == {"p50": 1.0, "p90": 2.0, "p99": 2.0}
    assert percentiles(range(100, 0, -1)) == {"p50": 50, "p90": 90, "p99": 99}
    assert percentiles(range(1, 102)) == {"p50": 51, "p90": 91, "p99": 100}


def test_a_summary_of_nothing_has_no_percentiles() -> None:
    found = summary([], 0.0, 60.0, 3)
    assert found["models"] == {}
    assert found["all"]["requests"] == 0
    assert found["all"]["seconds"] is found["all"]["tokens_per_second"] is None
    assert found["over_time"]["requests"] == [0, 0, 0]


def test_a_summary_is_in_all_by_model_and_over_time() -> None:
    samples = [
        sample(0.0),
        sample(19.999),
        sample(20.0, model="n", code="boom", first=None, predicted_ms=None),
        sample(59.9, model=None),
    ]
    found = summary(samples, 0.0, 60.0, 3)
    assert found["over_time"]["bucket_seconds"] == 20.0
    assert found["over_time"]["requests"] == [2, 1, 1]
    assert found["over_time"]["errors"] == [0, 1, 0]
    assert found["over_time"]["completion_tokens"] == [5, 10, 0], "they come from 0.75 s on"
    assert sorted(found["models"]) == ["m", "n"]
    assert (found["all"]["requests"], found["all"]["errors"], found["all"]["prompt_tokens"]) == (4, 1, 40)
    assert found["models"]["n"]["first"] is None
    assert found["models"]["m"]["tokens_per_second"]["p50"] == pytest.approx(50.0)


def test_a_summary_of_many_models_compares_no_two_of_their_names() -> None:
    """In linear time: whoever may load files by path may have made up any number of models."""
    compared: list[object] = []

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return str.__eq__(self, other)

    found = summary([sample(0.0, Name(f"model-{number}")) for number in range(200)], 0.0, 60.0, 3)
    assert len(found["models"]) == 200
    assert len(compared) < 200


def test_the_tokens_of_an_answer_are_where_it_was_written() -> None:
    long = replace(sample(5.0, first=5.0, seconds=45.0), completion_tokens=80)  # from 10 to 50
    assert summary([long], 0.0, 60.0, 3)["over_time"]["completion_tokens"] == [20, 40, 20]
    assert summary([long], 0.0, 40.0, 2)["over_time"]["completion_tokens"] == [20, 40], "what comes later is left out"
    assert summary([long], 20.0, 60.0, 2)["over_time"]["completion_tokens"] == [40, 20]
    assert sum(summary([long], 0.0, 60.0, 7)["over_time"]["completion_tokens"]) == 80, "no rounding loses a token"
    at_once = replace(sample(20.0, first=None, seconds=0.0), completion_tokens=3)
    assert summary([at_once], 0.0, 60.0, 3)["over_time"]["completion_tokens"] == [0, 3, 0]


def test_the_edges_of_the_time_belong_to_one_part_each() -> None:
    """The first moment is in the first part, the last one before the end in the last, others in none."""
    last = 60.0 - 2**-47
    found = summary([sample(at) for at in (-1e-9, 0.0, last, 60.0)], 0.0, 60.0, 7)
    assert found["over_time"]["requests"] == [1, 0, 0, 0, 0, 0, 1]
    tenths = summary([sample(number / 10) for number in range(10)], 0.0, 1.0, 10)
    assert sum(tenths["over_time"]["requests"]) == 10


def test_a_time_that_is_empty_or_runs_backward_has_no_requests() -> None:
    for since, until in ((5.0, 5.0), (6.0, 5.0)):
        assert summary([sample(5.0)], since, until, 2)["over_time"]["requests"] == [0, 0]
