"""What planner and estimate are told."""

from __future__ import annotations

import pytest

from supervisor.core.launch import LaunchOptions, LoraAdapter, ModelFacts, estimate_options, explicit_of
from supervisor.core.memory import EstimateOptions
from supervisor.core.memory.patterns import matcher
from supervisor.core.options import Mark, Option, options_of
from supervisor.core.plan import Explicit
from supervisor.errors import InvalidRequest
from tests.support.option_values import values_of

ROWS = options_of(LaunchOptions)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_counts_is_told_and_nothing_else(row: Option) -> None:
    """The table says which options the estimate counts (it does not know adapters and draft models yet)."""
    told = {
        estimate_options(LaunchOptions(**{row.name: value}), ModelFacts(encoder=encoder)) != bare
        for encoder in (False, True)
        for bare in [estimate_options(LaunchOptions(), ModelFacts(encoder=encoder))]
        for value in values_of(row)
    }
    assert (True in told) == (Mark.COUNTED in row.marks)


def test_what_is_not_asked_for_is_the_default() -> None:
    assert estimate_options(LaunchOptions(), ModelFacts()) == EstimateOptions()
    assert explicit_of(LaunchOptions()) == Explicit()


def test_how_it_is_told() -> None:
    options = LaunchOptions(
        ctx_size=0,
        device=(),
        override_tensor=(r"blk\.1\.ffn=CUDA0",),
        n_cpu_ffn=2,
        lora=(LoraAdapter("/a"),),
        spec_type=("ngram-mod", "draft-mtp"),
        spec_draft_n_max=0,
    )
    found = estimate_options(options, ModelFacts(encoder=True), backend="cuda", mmproj=7)
    assert (found.ctx_size, found.devices, found.embeddings, found.backend, found.mmproj) == (0, (), True, "cuda", 7)
    assert (found.speculative, found.draft_n_max) == ("draft-mtp", 0)
    assert found.override_tensors == (
        (r"blk\.1\.ffn", "CUDA0"),
        (r"blk\.(?:[0-0]|1)\.ffn_(up|down|gate)\.", "CPU"),
    )


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 36, 99, 100, 101, 999, 1000, 1203, 10_000])
def test_the_first_layers_are_one_short_pattern_however_many_they_are(count: int) -> None:
    ((pattern, _),) = estimate_options(LaunchOptions(n_cpu_ffn=count), ModelFacts()).override_tensors
    assert len(pattern) < 200
    layers = matcher((pattern,))
    near = {0, 1, 9, 10, 11, 99, 100, 999, *range(max(0, count - 12), count + 12)}
    assert {layer for layer in near if layers.first(f"blk.{layer}.ffn_up.weight") == 0} == {
        layer for layer in near if layer < count
    }


@pytest.mark.parametrize("device", [(), ("none",)])
def test_no_device_can_be_said_in_two_ways(device: tuple[str, ...]) -> None:
    assert explicit_of(LaunchOptions(device=device)).devices == ()
    assert estimate_options(LaunchOptions(device=device), ModelFacts()).devices == ()


def test_what_the_user_decided() -> None:
    options = LaunchOptions(
        ctx_size=5,
        device=("CUDA1",),
        tensor_split=(1.0,),
        split_mode="none",
        main_gpu=1,
        n_gpu_layers=2,
        n_cpu_moe=3,
        cache_type_k="q8_0",
        cache_type_v="f16",
    )
    assert explicit_of(options) == Explicit(5, ("CUDA1",), (1.0,), "none", 1, 2, 3, "q8_0", "f16")
    assert explicit_of(LaunchOptions(split_mode="layer")).split_mode == "layer"


@pytest.mark.parametrize("mode", ["row", "tensor"])
def test_splits_that_nothing_can_compute_are_refused(mode: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be planned") as caught:
        explicit_of(LaunchOptions(split_mode="row" if mode == "row" else "tensor"))
    assert caught.value.param == "split_mode"
