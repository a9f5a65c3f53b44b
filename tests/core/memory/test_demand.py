"""A demand, added up for a placement, is never less than the estimate of that placement, and little more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.core.memory import (
    Demand,
    EstimateOptions,
    MemoryEstimate,
    Refusal,
    Shape,
    context_demand,
    demand,
    estimate,
    place_layers,
    refuse,
    weight_table,
)
from supervisor.core.memory.compute import sent_to
from supervisor.core.spec import ModelSpec
from tests.core.memory.support import MIB, spec_of
from tests.core.memory.test_properties import specs, ways
from tests.evidence.subjects import recorded_subjects

OVERRIDES = ((), ((r"blk\.1\.", "CPU"),), ((r"ffn_.*_exps", "GPU0"), (r"output", "CPU")))


def shape_of(places: tuple[int, ...], options: EstimateOptions) -> Shape:
    if max(places) < 0:
        return "host"
    if min(places) < 0:
        return "mixed"
    return "solo" if len(options.devices) == 1 else "pipeline"


def of(spec: ModelSpec, options: EstimateOptions, places: tuple[int, ...]) -> Demand:
    return demand(weight_table(spec, options), context_demand(spec, options, shape_of(places, options)), options)


def added_up(found: Demand, options: EstimateOptions, places: tuple[int, ...]) -> list[int]:
    """Bytes by device, the host last, with the output buffer."""
    context = found.context
    total = [found.named.get(name, 0) for name in options.devices]
    total.append(found.host + context.host_compute + context.output)
    used = sorted({place for place in places if place >= 0})
    for layer, place in enumerate(places):
        total[place] += found.home[layer] if place < 0 else found.layers[layer]
        total[-1] += found.beside[layer] if place >= 0 else 0
    for device in used:
        total[device] += found.copied + (context.first if device == used[0] else context.others)
    total[-1] += found.copied if -1 in places else 0
    if used:
        total[0] += found.lead
    widest = max(context.first, context.others, context.host_compute)
    for device in sent_to(options) - set(
        used
    ):  # as plans have it: it computes with its tensors, whatever layers it holds
        total[device] += widest
    return total


@given(specs, ways(), st.sampled_from(OVERRIDES), st.booleans())
def test_a_demand_is_an_upper_bound(
    spec: ModelSpec, options: EstimateOptions, overrides: tuple[tuple[str, str], ...], cpu_moe: bool
) -> None:
    assume(all(place == "CPU" or place in options.devices for _, place in overrides))
    options = replace(options, override_tensors=overrides, cpu_moe=cpu_moe)
    truth = estimate(spec, options)
    places = place_layers(spec, options)
    if isinstance(truth, Refusal):
        assert refuse(spec, options) == truth
        return
    assert refuse(spec, options) is None
    found = of(spec, options, places)
    exact = [device.total_bytes for device in truth.devices]
    exact[-1] += truth.output_bytes
    bounds = added_up(found, options, places)
    assert all(bound >= size for bound, size in zip(bounds, exact, strict=True)), (bounds, exact)
    assert (found.context.n_ctx, found.context.n_ctx_seq) == (truth.n_ctx, truth.n_ctx_seq)


@pytest.mark.parametrize("split", [(), (1, 1, 8), (1, 8, 1)], ids=str)
@pytest.mark.parametrize(("context", "ubatch"), [(1, 1), (4096, 512)])
def test_it_is_one_for_every_model_on_record(context: int, ubatch: int, split: tuple[int, ...]) -> None:
    options = EstimateOptions(
        ctx_size=context, kv_unified=False, ubatch_size=ubatch, devices=("A", "B", "C"), tensor_split=split
    )
    seen = 0
    for name in recorded_subjects():
        spec = spec_of(name)
        truth = estimate(spec, options)
        if isinstance(truth, Refusal):
            continue
        places = place_layers(spec, options)
        exact = [device.total_bytes for device in truth.devices]
        exact[-1] += truth.output_bytes
        bounds = added_up(of(spec, options, places), options, places)
        assert all(bound >= size for bound, size in zip(bounds, exact, strict=True)), (name, bounds, exact)
        seen += 1
    assert seen > 500


def test_it_is_exact_for_common_models() -> None:
    for name in ("llama-3.1-8b", "qwen3-235b-a22b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b"):
        spec = spec_of(name)
        for devices, layers, moved in ((1, None, 0), (3, None, 0), (3, None, 9), (2, 20, 0), (0, 0, 0)):
            options = EstimateOptions(
                ctx_size=32768,
                devices=("A", "B", "C")[:devices],
                n_gpu_layers=layers,
                n_cpu_moe=moved,
                cache_type_k="q8_0",
                cache_type_v="q8_0",
            )
            places = place_layers(spec, options)
            truth = estimate(spec, options)
            found = of(spec, options, places)
            assert isinstance(truth, MemoryEstimate)
            excess = sum(added_up(found, options, places)) - sum(device.total_bytes for device in truth.devices)
            assert 0 <= excess - truth.output_bytes < MIB, (name, options)
