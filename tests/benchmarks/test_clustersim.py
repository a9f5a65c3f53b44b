"""What the simulated fleet counts as loaded twice."""

from __future__ import annotations

import pytest

from benchmarks.clustersim.fleet import Loads

CLAIMS = {
    "nobody knows of any": set[tuple[str, int]](),
    "only one of them has a claim": {("one", 0)},
    "both believe to have the same copy": {("one", 0), ("two", 0)},
    "a third one has the other copy": {("one", 0), ("three", 1)},
}


def loads(claims: set[tuple[str, int]], *, lost: str = "", gone: str = "") -> Loads:
    """A model is loaded on `one`, and then on `two`. lost, gone: a node that may have lost its claims, or the model."""
    found = Loads(
        has=lambda name, model: name != gone,
        lost=lambda name: name == lost,
        claims=lambda name, model: {one for one in claims if one[0] in {name, "three"}},
    )
    found.begun("one", "model", 1.0)
    found.begun("two", "model", 2.0)
    return found


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS)
def test_a_second_load_counts_that_no_claim_of_its_own_allows(claims: set[tuple[str, int]]) -> None:
    assert loads(claims).twice == ["2.0: model on two, though one has it"]


def test_a_copy_with_a_claim_of_its_own_does_not_count() -> None:
    found = loads({("one", 0), ("two", 1)})
    assert (found.count, found.twice) == (2, [])
    found.begun("four", "model", 3.0)
    assert found.twice == ["3.0: model on four, though one has it", "3.0: model on four, though two has it"]


@pytest.mark.parametrize("how", [{"lost": "one"}, {"lost": "two"}, {"gone": "one"}])
def test_what_a_node_has_lost_may_be_loaded_elsewhere(how: dict[str, str]) -> None:
    assert not loads(set(), **how).twice


def test_what_has_ended_may_be_loaded_again() -> None:
    found = loads(set(), gone="one")
    found.ended("two", "model")
    found.begun("three", "model", 3.0)
    assert (found.count, found.twice) == (3, [])


def test_other_models_do_not_count() -> None:
    found = loads(set(), gone="one")
    found.begun("three", "another", 3.0)
    assert not found.twice
