"""Listings in the shapes that published repositories have, and what is to be seen in each."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.repository import Catalog, RepoFile, catalog_of, find, projector_for
from supervisor.errors import ShardMissing, VariantAmbiguous, VariantNotFound

LISTINGS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "listings.json").read_text("utf-8"))
BY_SHAPE = {listing["shape"]: listing for listing in LISTINGS}


def read(listing: dict[str, Any]) -> Catalog:
    return catalog_of(RepoFile(file["path"], file["size"]) for file in listing["files"])


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing["shape"])
def test_what_is_in_it(listing: dict[str, Any]) -> None:
    found = read(listing)
    assert [variant.name for variant in found.variants] == listing["variants"]
    assert [file.path for file in found.drafts] == listing["drafts"]
    assert [file.path for file in found.adapters] == listing["adapters"]
    missing = {variant.name: list(variant.missing) for variant in found.variants if variant.missing}
    assert missing == listing["missing"]


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing["shape"])
def test_the_projector_of_the_best(listing: dict[str, Any]) -> None:
    found = read(listing)
    if found.variants:
        chosen = projector_for(found, found.variants[0])
        assert (chosen.path if chosen else None) == listing["projector"]


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing["shape"])
def test_every_file_is_exactly_one_thing(listing: dict[str, Any]) -> None:
    found = read(listing)
    parts = [part for variant in found.variants for part in variant.parts]
    every = [*parts, *found.projectors, *found.drafts, *found.adapters, *found.others]
    assert sorted(file.path for file in every) == sorted(file["path"] for file in listing["files"])


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing["shape"])
def test_every_variant_is_found_by_its_name_in_any_case(listing: dict[str, Any]) -> None:
    found = read(listing)
    for variant in found.variants:
        if variant.missing:
            continue
        by_path = find(found, listing["repo"], None, variant.path.upper())
        assert by_path == (variant,)
        if variant.name == variant.quant:
            assert find(found, listing["repo"], variant.quant.lower(), None) == (variant,)


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing["shape"])
def test_the_order_of_the_listing_does_not_matter(listing: dict[str, Any]) -> None:
    shuffled = list(listing["files"])
    random.Random(7).shuffle(shuffled)
    assert read({**listing, "files": shuffled}) == read(listing)


def test_the_projector_of_a_folder_goes_with_its_models() -> None:
    found = read(BY_SHAPE["a folder per size, each with its projector"])
    small = next(variant for variant in found.variants if variant.quant == "Q4_K_M")
    chosen = projector_for(found, small)
    assert chosen is not None
    assert chosen.path == "2B/mmproj-vision-2b-F16.gguf"


def test_a_dynamic_quantisation_is_found_without_its_prefix_where_there_is_no_plain_one() -> None:
    found = read(BY_SHAPE["dynamic quantisations beside plain ones, projectors of three widths"])
    assert find(found, "r", "q4_k_xl", None)[0].quant == "UD-Q4_K_XL"
    assert find(found, "r", "Q4_K_M", None)[0].quant == "Q4_K_M"


@pytest.mark.parametrize("quant", ["Q4_K", "Q4", "F1", "Q4_K_M_L", "K_M", "BF", "8_0"])
def test_a_part_of_a_quantisations_name_is_not_its_name(quant: str) -> None:
    found = read(BY_SHAPE["flat, a file per quantisation, the imatrix beside them"])
    with pytest.raises(VariantNotFound, match=r"It has: F16 \(15\.3 GiB\)"):
        find(found, "someone/Llama", quant, None)


def test_f16_is_not_bf16() -> None:
    found = read(BY_SHAPE["a folder per quantisation, all sharded"])
    with pytest.raises(VariantNotFound):
        find(found, "r", "F16", None)
    assert len(find(found, "r", "bf16", None)[0].parts) == 30


def test_what_several_files_answer_to_has_to_be_named_by_its_path() -> None:
    found = read(BY_SHAPE["several small models in one repository"])
    with pytest.raises(VariantAmbiguous, match="org/models/bert-bge-small/ggml-model-f16"):
        find(found, "org/models", "F16", None)
    assert find(found, "r", None, "jina-reranker")[0].path == "jina-reranker/ggml-model-f16.gguf"


def test_a_variant_that_lacks_parts_is_refused_by_name_and_never_chosen() -> None:
    found = read(BY_SHAPE["an upload that was not finished"])
    with pytest.raises(ShardMissing, match="00003-of-00004"):
        find(found, "r", "Q4_K_M", None)
    assert [variant.name for variant in find(found, "r", None, None)] == ["Q2_K"]


def test_a_repository_without_gguf_says_so() -> None:
    with pytest.raises(VariantNotFound, match="has no GGUF model"):
        find(read(BY_SHAPE["no GGUF at all"]), "vendor/Llama-3.2-1B", None, None)
