"""Every measurement on record against the estimate: caches and states exactly, the rest within stated bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.memory import EstimateOptions, MemoryEstimate, Refusal, estimate
from supervisor.core.memory.context import resolve_context
from supervisor.core.memory.facts import facts_of
from tests.core.memory.support import MIB, estimated, k_bytes, spec_of, v_bytes
from tests.evidence.compare import options_of
from tests.evidence.matrix import recorded
from tests.evidence.measure import Measurement
from tests.evidence.settings import EVERY
from tests.evidence.subjects import KNOWN, TINY, kind_of

RESOLUTION = 0.0051
"""MiB: half of what the log's last digit stands for."""

TIED_TWICE = {"gemma-3n", "gemma-4-"}

LEAST = 0.99
"""Never under by more than 1 %."""


def name_of(measurement: Measurement) -> str:
    return f"{measurement.subject} {measurement.setting}"


ALL = list(recorded())


def _is_mapped_around(measured: Measurement) -> bool:
    """The log has what is mapped: blocks that are left out lie in between."""
    return "nextn" in measured.subject and set(measured.model) == {"CPU_Mapped"} and "mtp" not in measured.setting


CACHED = [measured for measured in ALL if measured.knows_cache and measured.outcome != "refused"]
COMPUTED = [one for one in ALL if one.knows_compute and not one.setting.startswith("mtp")]
"""A draft context reserves twice, and the log has both: its lines do not add up to what is allocated."""
WEIGHED = [one for one in CACHED if one.model and not one.breakdown and not _is_mapped_around(one)]


def estimate_of(measured: Measurement) -> MemoryEstimate:
    return estimated(spec_of(measured.subject), options_of(EVERY[measured.setting]))


def test_the_record_is_there() -> None:
    assert len(CACHED) > 3500


def test_caches_and_states_are_exact() -> None:
    wrong = [name_of(measured) for measured in CACHED if not _caches_agree(measured)]
    assert wrong == []


def _caches_agree(measured: Measurement) -> bool:
    spec, options = spec_of(measured.subject), options_of(EVERY[measured.setting])
    context, facts = resolve_context(spec, options), facts_of(spec)
    caches = [rule.allocate(context, options.cache_type_k, options.cache_type_v) for rule in facts.caches]
    if options.drafts:
        types = options.cache_type_k_draft, options.cache_type_v_draft
        caches += [rule.allocate(context, *types) for rule in facts.draft]
    ours = sorted((c.cells, len(c.layers), c.streams, k_bytes(c) / MIB, v_bytes(c) / MIB) for c in caches)
    theirs = sorted((c.cells, c.layers, c.streams, c.k, c.v) for c in measured.caches if c.layers)
    states = sum(facts.states) * context.states / MIB
    return (
        [cache[:3] for cache in ours] == [cache[:3] for cache in theirs]
        and all(
            abs(mine - logged) < RESOLUTION
            for ours_, theirs_ in zip(ours, theirs, strict=True)
            for mine, logged in zip(ours_[3:], theirs_[3:], strict=True)
        )
        and abs(states - measured.state) < 2 * RESOLUTION * max(len(measured.states), 1)  # R and S are rounded apart
        and (context.n_ctx, context.cells, context.n_seq) == (measured.n_ctx, measured.n_ctx_seq, measured.n_seq)
    )


def test_what_the_engine_refuses_is_refused_and_nothing_else() -> None:
    ours = {name_of(one) for one in ALL if isinstance(_outcome(one), Refusal)}
    assert ours == {name_of(one) for one in ALL if one.outcome == "refused"}


def _outcome(measured: Measurement) -> MemoryEstimate | Refusal:
    return estimate(spec_of(measured.subject), options_of(EVERY[measured.setting]))


def test_weights_of_the_tiny_models_are_exact() -> None:
    wrong = [
        name_of(one)
        for one in WEIGHED
        if abs(estimate_of(one).weights_bytes / MIB - sum(one.model.values())) > 2 * RESOLUTION * len(one.model)
    ]
    assert wrong == []


def test_output_buffers_are_exact() -> None:
    wrong = [
        name_of(one)
        for one in CACHED
        if one.output
        and abs(estimate_of(one).output_bytes / MIB - sum(one.output.values())) > 2 * RESOLUTION * len(one.output)
    ]
    assert wrong == []


def test_devices_hold_what_the_engine_projects() -> None:
    """Of weights, and of caches with states, the projection has whole MiB per device.

    Without a device it counts the tied embeddings of two models twice; the file is mapped once.
    """
    wrong, seen = [], 0
    for measured in ALL:
        for device in estimate_of(measured).devices if measured.breakdown else ():
            weights, context, _ = measured.breakdown.get(device.name.replace("CPU", "Host"), (0, 0, 0))
            ours = device.weights_bytes / MIB, (device.kv_bytes + device.recurrent_bytes) / MIB
            seen += 1
            mapped = device.name == "CPU" == measured.setting[-3:].upper() and measured.subject[:8] in TIED_TWICE
            if (abs(ours[0] - weights) > 1.01 and not mapped) or abs(ours[1] - context) > 1.01:
                wrong.append(f"{name_of(measured)} {device.name}: {ours}, projected {(weights, context)}")
    assert wrong == []
    assert seen > 700


def ratios(kind: str, host: bool) -> list[tuple[float, str]]:
    """Estimated to measured compute buffers; the CPU without devices beside it counts as a device."""
    return sorted(
        (device.compute_bytes / MIB / measured.compute[device.name], f"{name_of(measured)} {device.name}")
        for measured in COMPUTED
        if kind_of(measured.subject) == kind
        for device in estimate_of(measured).devices
        if measured.compute.get(device.name) and (device.name == "CPU" and EVERY[measured.setting].devices > 0) is host
    )


@pytest.mark.parametrize("kind", [TINY, KNOWN])
def test_compute_buffers_are_never_under(kind: str) -> None:
    found = ratios(kind, host=False)
    assert found[0][0] >= LEAST, found[:5]
    assert found[len(found) // 2][0] < 1.06
    assert found[len(found) * 9 // 10][0] < 1.35


def test_compute_buffers_of_the_host_are_never_under() -> None:
    found = ratios(KNOWN, host=True)
    assert found[0][0] >= LEAST, found[:5]
    assert found[len(found) * 9 // 10][0] < 1.05


def test_states_on_the_host_are_scanned_there_and_no_more_is_counted_than_that() -> None:
    [measured] = [one for one in COMPUTED if (one.subject, one.setting) == ("nemotron-nano-9b-v2", "2dev-nkvo")]
    host = estimate_of(measured).devices[-1]
    assert 1 <= host.compute_bytes / MIB / measured.compute[host.name] < 1.1


MAINSTREAM = [
    *("llama-3.1-8b", "llama-3.3-70b", "mistral-small-24b", "mixtral-8x7b", "qwen3-8b", "qwen3-32b", "qwen2.5-72b"),
    *("qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3.5-27b", "qwen3.5-397b-a17b", "gemma-2-27b", "gemma-3-27b"),
    *("gemma-3-4b", "gpt-oss-20b", "gpt-oss-120b", "deepseek-v3", "kimi-k2", "glm-4.6", "glm-4.5-air", "phi-4"),
]


@pytest.mark.parametrize("subject", MAINSTREAM)
def test_compute_buffers_of_the_mainstream_are_within_five_percent(subject: str) -> None:
    """On one device and on the CPU, with flash attention."""
    settings = {"8k", "32k", "8k-ub2048", "8k-auto", "32k-np4-q8", "8k-cpu"}
    measured = [one for one in COMPUTED if one.subject == subject and one.setting in settings]
    assert len(measured) == len(settings)
    for one in measured:
        for device in estimate_of(one).devices:
            if device.name in one.compute:
                assert device.compute_bytes / MIB / one.compute[device.name] < 1.05, name_of(one)


def test_layers_that_read_a_windowed_cache_elsewhere_are_counted() -> None:
    """Layer 19 lends the caches without a window, 18 those with one: loaded in two parts that lie between them.

    llama-server then logged 474.07 MiB for the second device, on RPC workers.
    """
    options = EstimateOptions(ctx_size=4096, parallel=1, tensor_split=(19, 17), devices=("RPC0", "RPC1"))
    assert estimated(spec_of("gemma-3n-e4b"), options).devices[1].compute_bytes / MIB >= 474.07


def test_masks_are_on_the_devices_whose_layers_attend() -> None:
    options = EstimateOptions(ctx_size=32768, parallel=1, devices=("RPC0", "RPC1"))
    spec = spec_of("granitehybrid/wide")
    without, across = (
        estimated(spec, replace(options, tensor_split=split)).devices[0].compute_bytes / MIB
        for split in ((3, 6), (4, 5))
    )
    assert 128 < across - without < 129  # four copies of 512 tokens by 32768 cells in F16
