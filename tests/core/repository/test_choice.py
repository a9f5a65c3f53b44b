"""Names, the order of quality, and which variant is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.repository import (
    ORDER,
    Assessment,
    Preference,
    RepoFile,
    Variant,
    best,
    catalog_of,
    find,
    listing,
    quant_of,
    rank,
)
from tests.support.paths import ROOT

QUANTS = st.sampled_from([*ORDER, *(f"UD-{quant}" for quant in ORDER if "_K" in quant)])
BASES = st.from_regex(r"[A-Z][a-z]{1,8}(-[0-9]{1,2}B)?(-it)?", fullmatch=True)


@given(BASES, QUANTS, st.sampled_from("-._"), st.booleans(), st.integers(0, 3))
def test_a_quantisation_is_read_from_every_kind_of_name(
    base: str, quant: str, mark: str, lower: bool, shards: int
) -> None:
    shown = quant.lower() if lower else quant
    name = f"{base}{mark}{shown}" + (f"-00001-of-{shards:05d}" if shards else "")
    assert quant_of(f"{name}.gguf") == quant
    assert quant_of(f"{shown}/{base}.gguf") == quant
    assert quant_of(f"Q2_K/{name}.gguf") == quant


@pytest.mark.parametrize("name", ["Q4_KX", "Q4_K_MX", "AQ4_K_M", "Q4_K_M8", "BF16x", "Qwen2", "IQ", "F16bit", "q4x"])
def test_what_only_looks_like_one_is_none(name: str) -> None:
    assert quant_of(f"model-{name}.gguf") == ""


@given(st.sets(QUANTS, min_size=1), st.integers(1, 4))
def test_shards_in_any_number_are_one_variant_each(quants: set[str], count: int) -> None:
    files = [
        RepoFile(f"m-{quant}-{number:05d}-of-{count:05d}.gguf", 10)
        for quant in quants
        for number in range(1, count + 1)
    ]
    found = catalog_of(files).variants
    assert {variant.name for variant in found} == quants
    assert all(len(variant.parts) == count and variant.size == 10 * count and not variant.missing for variant in found)
    assert list(found) == sorted(found, key=lambda variant: rank(variant.quant))


@given(st.sets(QUANTS, min_size=1), QUANTS)
def test_only_the_whole_name_is_found(quants: set[str], wanted: str) -> None:
    catalog = catalog_of(RepoFile(f"m-{quant}.gguf", 10) for quant in quants)
    try:
        found = find(catalog, "a/b", wanted, None)[0].quant
    except Exception:  # noqa: BLE001 - whatever it is, it must be because there is none
        assert wanted not in quants
        assert f"UD-{wanted}" not in quants
    else:
        assert found in {wanted, f"UD-{wanted}"}
        assert found == wanted or wanted not in quants


def assessed(**verdicts: str) -> list[Assessment]:
    """`well`, `fits` or `no` by quantisation."""
    return [
        Assessment(Variant(quant, quant, (RepoFile(f"m-{quant}.gguf", 1 << 30),)), how != "no", how == "well")
        for quant, how in verdicts.items()
    ]


@pytest.mark.parametrize(
    ("verdicts", "chosen"),
    [
        ({"Q4_K_M": "well", "Q8_0": "well", "BF16": "no"}, "Q8_0"),
        ({"Q2_K": "well", "Q8_0": "fits", "Q4_K_M": "fits"}, "Q2_K"),
        ({"Q8_0": "fits", "Q4_K_M": "fits", "Q2_K": "fits"}, "Q4_K_M"),
        ({"Q8_0": "fits", "Q6_K": "fits"}, "Q6_K"),
        ({"Q8_0": "no"}, None),
        ({}, None),
    ],
)
def test_the_best_that_fits(verdicts: dict[str, str], chosen: str | None) -> None:
    found = best(assessed(**verdicts))
    assert (found.quant if found else None) == chosen


PROSPECTS = st.tuples(st.booleans(), st.integers(1, 10**6), st.floats(0.1, 1e4))


@given(st.dictionaries(QUANTS, PROSPECTS), st.sampled_from(["quality", "speed", "context"]))
def test_what_is_preferred_fits_and_nothing_good_has_more_of_it(
    prospects: dict[str, tuple[bool, int, float]], prefer: Preference
) -> None:
    table = [
        Assessment(Variant(quant, quant, ()), fits, context=context, speed=speed)
        for quant, (fits, context, speed) in prospects.items()
    ]
    fitting = {one.variant.quant: one for one in table if one.fits}
    found = best(table, prefer)
    if found is None:
        assert not fitting
        return
    taken = fitting[found.quant]
    good = [one for quant, one in fitting.items() if rank(quant) <= rank("Q4_0")] or list(fitting.values())
    if prefer == "quality":
        assert rank(found.quant) == min(map(rank, fitting))
    else:
        assert getattr(taken, prefer) == max(getattr(one, prefer) for one in good)
        assert taken in good


@given(st.dictionaries(QUANTS, st.sampled_from(["well", "fits", "no"])))
def test_what_is_chosen_fits_and_nothing_better_does_as_well(verdicts: dict[str, str]) -> None:
    found = best(assessed(**verdicts))
    if found is None:
        assert set(verdicts.values()) <= {"no"}
    elif verdicts[found.quant] == "well":
        assert all(how != "well" for quant, how in verdicts.items() if rank(quant) < rank(found.quant))
    else:
        assert verdicts[found.quant] == "fits"
        assert "well" not in verdicts.values()


def test_the_listing_has_sizes_and_verdicts() -> None:
    shown = listing(assessed(Q8_0="no", Q4_K_M="well"))
    assert shown == "Q8_0 (1.0 GiB, does not fit), Q4_K_M (1.0 GiB, fits)"


def test_the_documentation_has_the_order() -> None:
    text = (ROOT / "docs" / "hub.md").read_text(encoding="utf-8").partition("The order of quality")[2]
    places = [text.find(f"`{quant}`") for quant in ORDER]
    assert -1 not in places
    assert places == sorted(places)
