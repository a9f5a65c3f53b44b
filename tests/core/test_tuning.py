"""What `tune` tries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.options import LaunchOptions, options_of
from supervisor.core.speed.tuning import Facts, Job, is_better, kinds, promising

NAMES = {row.name for row in options_of(LaunchOptions)}
FACTS = st.builds(
    Facts,
    st.integers(1, 256),
    st.integers(1, 512),
    st.integers(0, 200),
    st.frozensets(st.sampled_from(["threads", "ubatch_size", "cache_type_k", "n_cpu_moe", "spec_type", "ctx_size"])),
)


@given(FACTS)
def test_every_change_is_an_option_that_nobody_set(facts: Facts) -> None:
    for kind in kinds(facts):
        assert kind
        for changes in kind:
            assert changes.keys() <= NAMES
            assert not changes.keys() & facts.given
            assert changes.get("n_cpu_moe", 0) in range(max(1, facts.n_cpu_moe))


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6))), st.integers(1, 5))
def test_the_fastest_are_promising_and_the_unknown_come_last(seconds: list[float | None], most: int) -> None:
    found = promising([({"threads": number}, one) for number, one in enumerate(seconds)], most)
    assert len(found) == min(most, len(seconds))
    known = sorted(one for one in seconds if one is not None)
    assert [one for _, one in found if one is not None] == known[: len(found)]


def test_a_job_and_what_counts_as_better() -> None:
    assert Job(1000, 100).seconds(500, 50) == 4
    assert Job(1000, 100).seconds(0, 50) == float("inf")
    assert is_better(0.9, than=1.0)
    assert not is_better(0.98, than=1.0)
