"""Repositories that anybody may publish: files that say they are one of thousands of parts, thousands of models."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import islice

import pytest

from supervisor.core.repository import Assessment, Catalog, RepoFile, catalog_of, find, listing, projector_for
from supervisor.core.repository.mlx import MOST_PARTS
from supervisor.errors import ShardMissing, VariantAmbiguous, VariantNotFound

MANY = 4000
MIB = 1 << 20


def catalog(paths: Iterable[str]) -> Catalog:
    return catalog_of(RepoFile(path, 1000) for path in paths)


def memory(work: Callable[[], object]) -> int:
    """The most bytes that it holds."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def test_parts_that_are_not_there_take_no_memory() -> None:
    paths = [f"m{number}-Q4_0-00001-of-04096.gguf" for number in range(200)]
    assert memory(lambda: catalog(paths)) < 2 * MIB


def test_nor_do_those_of_a_model_for_mlx() -> None:
    paths = ["config.json", *(f"model{number}-00001-of-04096.safetensors" for number in range(200))]
    assert memory(lambda: catalog(paths)) < 8 * MIB
    found = catalog(paths).mlx
    assert found is not None
    assert len(found.missing) < MOST_PARTS


def test_they_are_counted_and_told() -> None:
    (found,) = catalog(["a/m-Q4_0-00002-of-04096.gguf"]).variants
    assert len(found.missing) == 4095
    assert list(islice(found.missing, 2)) == ["a/m-Q4_0-00001-of-04096.gguf", "a/m-Q4_0-00003-of-04096.gguf"]
    assert "a/m-Q4_0-04096-of-04096.gguf" in found.missing
    assert found.path not in found.missing
    with pytest.raises(ShardMissing, match=r"00001-of-04096.* and 4092 more"):
        find(catalog([found.path]), "a/b", None, None)


def test_what_says_that_it_has_more_parts_than_any_model_is_no_part() -> None:
    (found,) = catalog(["m-Q4_0-00001-of-99999.gguf"]).variants
    assert not found.missing


def test_the_best_of_thousands_is_not_looked_for() -> None:
    found = catalog(f"{number}/m-Q4_0.gguf" for number in range(MANY))
    with pytest.raises(VariantAmbiguous, match="4000 models, too many to choose from"):
        find(found, "a/b", None, None)
    assert find(found, "a/b", None, "7/m-Q4_0.gguf")[0].path == "7/m-Q4_0.gguf"


def test_messages_name_some_of_thousands() -> None:
    found = catalog(f"{number}/m-Q4_0.gguf" for number in range(MANY))
    with pytest.raises(VariantAmbiguous, match="and 3936 more") as several:
        find(found, "a/b", "Q4_0", None)
    with pytest.raises(VariantNotFound, match="and 3936 more") as none:
        find(found, "a/b", "Q8_0", None)
    told = listing([Assessment(variant, fits=True) for variant in found.variants])
    assert all(len(text) < 10_000 for text in (several.value.message, none.value.message, told))


@pytest.mark.cost
def test_the_projector_of_a_model_is_found_at_once_among_thousands() -> None:
    deep = "a/" * 200
    found = catalog(
        f"{deep}mmproj-{number}.gguf" if number % 2 else f"{deep}b/{number}-Q4_0.gguf" for number in range(MANY)
    )
    of_all = seconds(lambda: [projector_for(found, one) for one in found.variants[:50]])
    assert of_all < seconds(lambda: catalog_of(part for one in found.variants for part in one.parts))
    chosen = projector_for(found, found.variants[0])
    assert chosen is not None
    assert chosen.path == f"{deep}mmproj-1.gguf"
