"""What holds for every model and every way of starting it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate, max_context
from supervisor.core.spec import ModelSpec
from tests.core.memory.support import spec_of
from tests.evidence.subjects import recorded_subjects

SUBJECTS = recorded_subjects()
BACKENDS = ("", "cuda", "vulkan", "metal", "cuda,vulkan")
TYPES = ("f16", "q8_0", "q4_0", "f32")

specs = st.sampled_from(SUBJECTS).map(spec_of)


@st.composite
def ways(draw: st.DrawFn) -> EstimateOptions:
    n_devices = draw(st.integers(0, 3))
    kind = draw(st.sampled_from(TYPES))
    return EstimateOptions(
        ctx_size=draw(st.integers(1, 300_000)),
        parallel=draw(st.none() | st.integers(1, 64)),
        kv_unified=draw(st.booleans()),
        batch_size=draw(st.integers(32, 4096)),
        ubatch_size=draw(st.integers(1, 2048)),
        cache_type_k=kind,
        cache_type_v=kind,
        flash_attn=draw(st.sampled_from(("auto", "on", "off"))),
        swa_full=draw(st.booleans()),
        n_gpu_layers=draw(st.none() | st.integers(0, 100)),
        tensor_split=draw(st.just(()) | st.tuples(*[st.floats(0.5, 8)] * n_devices)),
        devices=tuple(f"GPU{number}" for number in range(n_devices)),
        n_cpu_moe=draw(st.integers(0, 8)),
        offload_kv=draw(st.booleans()),
        embeddings=draw(st.booleans()),
        speculative=draw(st.sampled_from(("none", "draft-mtp"))),
        backend=draw(st.sampled_from(BACKENDS)),
    )


def total(spec: ModelSpec, options: EstimateOptions) -> int:
    found = estimate(spec, options)
    assume(isinstance(found, MemoryEstimate))
    assert isinstance(found, MemoryEstimate)
    return found.total_bytes


@given(specs, ways())
def test_the_parts_are_the_whole(spec: ModelSpec, options: EstimateOptions) -> None:
    found = estimate(spec, options)
    assume(isinstance(found, MemoryEstimate))
    assert isinstance(found, MemoryEstimate)
    assert sum(layer.weights_bytes for layer in found.layers) + found.non_layer_weights_bytes == found.weights_bytes
    assert sum(layer.kv_bytes for layer in found.layers) == found.kv_bytes
    assert sum(layer.recurrent_bytes for layer in found.layers) == found.recurrent_bytes
    assert sum(device.total_bytes for device in found.devices) == (
        found.total_bytes - found.output_bytes - found.projector_bytes
    )


@given(specs, ways(), st.integers(0, 100_000))
def test_more_context_takes_no_less(spec: ModelSpec, options: EstimateOptions, more: int) -> None:
    """In steps of one cell for every slot: between them llama.cpp rounds up."""
    step = 256 * (options.parallel or 1)
    at = -(-(options.ctx_size or 1) // step) * step
    less, greater = replace(options, ctx_size=at), replace(options, ctx_size=at + more // step * step)
    assert total(spec, less) <= total(spec, greater)


@given(specs, ways(), st.integers(0, 6), st.integers(0, 6), st.booleans())
def test_more_slots_take_no_less(
    spec: ModelSpec, options: EstimateOptions, slots: int, more: int, unified: bool
) -> None:
    """Of the same context each, or in one that they share; twice as many, since batches are padded to whole slots."""
    assume(spec.architecture.name != "minimax-m3")  # with several slots its attention scores less at once: measured
    own = (options.ctx_size or 1) // 64 + 1
    fewer, greater = (
        replace(options, parallel=count, kv_unified=unified, ctx_size=own * (64 if unified else count))
        for count in (1 << min(slots, more), 1 << max(slots, more))
    )
    assert total(spec, fewer) <= total(spec, greater)


@given(specs, ways(), st.integers(0, 2048))
def test_a_larger_micro_batch_takes_no_less(spec: ModelSpec, options: EstimateOptions, more: int) -> None:
    greater = replace(options, ubatch_size=options.ubatch_size + more)
    assert total(spec, options) <= total(spec, greater)


@given(specs, ways(), st.integers(0, 1 << 40), st.integers(0, 1 << 38))
def test_the_inverse_is_consistent_and_monotone(
    spec: ModelSpec, options: EstimateOptions, budget: int, more: int
) -> None:
    found = max_context(spec, options, budget)
    if found is not None:
        assert total(spec, replace(options, ctx_size=found)) <= budget
        assert found <= (max_context(spec, options, budget + more) or 0)


@given(specs, ways())
def test_the_inverse_finds_what_was_computed(spec: ModelSpec, options: EstimateOptions) -> None:
    streams = 1 if options.parallel is None or options.kv_unified else options.parallel
    at = min(-(-(options.ctx_size or 1) // 256) * 256, spec.n_ctx_train // 256 * 256 or 256) * streams
    options = replace(options, ctx_size=at)
    assert (max_context(spec, options, total(spec, options)) or 0) >= at


@given(specs, ways())
def test_devices_hold_nothing_where_there_are_none(spec: ModelSpec, options: EstimateOptions) -> None:
    found = estimate(spec, replace(options, devices=(), tensor_split=()))
    assume(isinstance(found, MemoryEstimate))
    assert isinstance(found, MemoryEstimate)
    assert [device.name for device in found.devices] == ["CPU"]
    assert found.host_compute_bytes == 0
