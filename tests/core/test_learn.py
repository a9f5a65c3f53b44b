from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.footprint import DeviceFootprint, Footprint
from supervisor.core.learn.history import Observation, learned, lowers_plans, overhead, typical_seconds
from supervisor.core.learn.identity import Start, backend_of, options_hash, plain_settings
from supervisor.core.memory import EstimateOptions, MemoryEstimate, estimate
from supervisor.core.spec import read_spec
from tests.support.headers import header

MIB = 1 << 20
SPEC = read_spec(
    header(
        {
            "general.architecture": "llama",
            "llama.block_count": 4,
            "llama.context_length": 32768,
            "llama.embedding_length": 1024,
            "llama.feed_forward_length": 4096,
            "llama.attention.head_count": 8,
            "llama.attention.head_count_kv": 8,
            "llama.vocab_size": 32000,
            "llama.attention.layer_norm_rms_epsilon": 1e-6,
        },
        {
            "token_embd.weight": (1024, 32000),
            "output.weight": (1024, 32000),
            **{f"blk.{n}.ffn_up.weight": (1024, 4096) for n in range(4)},
        },
    )
)
ONE = EstimateOptions(ctx_size=4096, parallel=1, devices=("CUDA0",))
TWO = EstimateOptions(ctx_size=8192, parallel=1, devices=("CUDA0", "CUDA1"), tensor_split=(1, 1))


def estimated(options: EstimateOptions) -> MemoryEstimate:
    found = estimate(SPEC, options)
    assert isinstance(found, MemoryEstimate)
    return found


def compute(options: EstimateOptions) -> dict[str, int]:
    return {device.name: device.compute_bytes for device in estimated(options).devices}


def start(options: EstimateOptions, engine: str = "one", build: int | None = None, backend: str = "") -> Start:
    settings = plain_settings(options)
    backend = backend or backend_of(options.devices)
    return Start("model", options_hash(settings), settings, engine, backend, build=build)


def observed(
    options: EstimateOptions,
    factor: float = 1.0,
    *,
    at: float = 0.0,
    overhead_bytes: dict[str, int] | None = None,
    engine: str = "one",
    backend: str = "",
) -> Observation:
    """A start of these options whose compute buffers were `factor` times the estimate."""
    sizes = compute(options)
    devices = tuple(DeviceFootprint(name, compute_bytes=round(size * factor)) for name, size in sizes.items())
    footprint = Footprint(devices, n_ctx=estimated(options).n_ctx)
    return Observation(start(options, engine, backend=backend), footprint, sizes, overhead_bytes or {}, at)


def test_nothing_is_learned_from_nothing_another_model_or_another_back_end() -> None:
    assert learned([], start(ONE), estimated(ONE)) is None
    other = replace(observed(ONE), start=replace(start(ONE), model="other"))
    assert learned([other, observed(ONE, backend="vulkan")], start(ONE), estimated(ONE)) is None


def test_the_same_start_is_exact() -> None:
    found = learned([observed(ONE, 0.5, overhead_bytes={"CUDA0": 400 * MIB, "CPU": 9})], start(ONE), estimated(ONE))
    assert found is not None
    assert found.same
    assert found.overhead_bytes == {"CUDA0": 400 * MIB, "CPU": 9}
    for name, size in compute(ONE).items():
        assert round(found.compute[name] * size) == pytest.approx(size * 0.5, abs=1)


def test_no_start_says_more_than_five_times_the_estimate() -> None:
    """A file of the same name and shape may have written the account, of which nothing else would fit again."""
    found = learned([observed(ONE, 1000.0)], start(ONE), estimated(ONE))
    assert found is not None
    assert found.same
    assert set(found.compute.values()) == {5.0}


def test_exact_figures_do_not_depend_on_what_was_estimated_then() -> None:
    then = replace(observed(ONE, 0.5), estimated={"CUDA0": 1})
    found = learned([then], start(ONE), estimated(ONE))
    assert found is not None
    assert found.compute["CUDA0"] == pytest.approx(0.5, rel=1e-6)


def test_other_options_scale_and_a_device_that_is_new_takes_the_ratio_of_its_kind() -> None:
    found = learned([observed(ONE, 1.8, overhead_bytes={"CUDA0": 7, "CPU": 1})], start(TWO), estimated(TWO))
    assert found is not None
    assert not found.same
    assert found.compute["CUDA0"] == found.compute["CUDA1"] == pytest.approx(1.8, rel=1e-6)
    assert found.overhead_bytes == {"CUDA0": 7, "CUDA1": 7, "CPU": 1}
    assert "other options" in found.source


def test_a_start_that_took_less_than_the_bound_lowers_no_other() -> None:
    found = learned([observed(ONE, 0.4)], start(TWO), estimated(TWO))
    assert found is not None
    assert set(found.compute.values()) == {1.0}


def test_a_context_that_the_engine_chose_differently_is_not_the_same() -> None:
    less = observed(ONE)
    less = replace(less, footprint=replace(less.footprint, n_ctx=1024))
    found = learned([less], start(ONE), estimated(ONE))
    assert found is not None
    assert not found.same


def test_other_devices_under_the_same_names_are_not_the_same() -> None:
    then = observed(ONE)
    then = replace(then, start=replace(then.start, devices=("NVIDIA H200",)))
    now = replace(start(ONE), devices=("NVIDIA L4",))
    found = learned([then], now, estimated(ONE))
    assert found is not None
    assert not found.same


def test_this_engine_with_other_options_comes_before_another_with_the_same() -> None:
    stored = [observed(ONE, 1.6, at=9, engine="two"), observed(TWO, 1.9, at=1)]
    found = learned(stored, start(ONE), estimated(ONE))
    assert found is not None
    assert found.compute["CUDA0"] == pytest.approx(1.9, rel=1e-6)


def test_another_build_serves_where_this_one_is_new_and_is_named() -> None:
    stored = replace(observed(ONE, 1.6), start=start(ONE, "two", build=11000))
    found = learned([stored], start(ONE), estimated(ONE))
    assert found is not None
    assert not found.same
    assert found.compute["CUDA0"] == pytest.approx(1.6, rel=1e-6)
    assert "build 11000" in found.source


def test_the_nearest_options_count_and_of_equal_ones_the_newest() -> None:
    near = replace(ONE, ctx_size=8192)
    far = replace(near, ubatch_size=64, cache_type_k="q8_0", cache_type_v="q8_0")
    stored = [observed(far, 1.5, at=9), observed(near, 1.7, at=1), observed(replace(ONE, ctx_size=16384), 1.9, at=2)]
    found = learned(stored, start(ONE), estimated(ONE))
    assert found is not None
    assert found.compute["CUDA0"] == pytest.approx(1.9, rel=1e-6)


def test_a_device_that_held_nothing_teaches_nothing() -> None:
    idle = observed(ONE)
    idle = replace(idle, footprint=Footprint((DeviceFootprint("CUDA0"), DeviceFootprint("CPU"))))
    found = learned([idle], start(ONE), estimated(ONE))
    assert found is not None
    assert found.compute == {}


def test_overhead_is_what_lies_beside_the_buffers() -> None:
    gpu = DeviceFootprint("CUDA0", weights_bytes=100, kv_bytes=20, compute_bytes=30, lazy_bytes=30)
    host = DeviceFootprint("CPU", weights_bytes=1000, kv_bytes=50, compute_bytes=70, output_bytes=5, lazy_bytes=1070)
    footprint = Footprint((gpu, host))
    assert overhead(footprint, {"CUDA0": 450, "CUDA1": 300}, 90) == {"CUDA0": 300, "CUDA1": 300, "CPU": 35}
    assert overhead(footprint, {"CUDA0": 0}, None) == {}
    assert overhead(footprint, {"CUDA0": 120}, 10) == {"CPU": 0}, "another process has that number in a container"


def test_the_typical_load_is_the_middle_of_the_newest_five() -> None:
    assert typical_seconds([]) is None
    assert typical_seconds([3.0]) == 3.0
    assert typical_seconds([1.0, 9.0, 2.0, 3.0, 2.5, 100.0, 100.0, 100.0]) == 2.5


OPTIONS = st.builds(
    EstimateOptions,
    ctx_size=st.sampled_from([512, 4096, 32768]),
    parallel=st.sampled_from([None, 1, 2]),
    ubatch_size=st.sampled_from([64, 512]),
    devices=st.sampled_from([(), ("CUDA0",), ("CUDA0", "CUDA1"), ("RPC0",)]),
)
OBSERVATIONS = st.builds(
    lambda options, factor, at, engine, extra: observed(options, factor, at=at, overhead_bytes=extra, engine=engine),
    OPTIONS,
    st.floats(0, 1000),
    st.integers(0, 5),
    st.sampled_from(["one", "two"]),
    st.dictionaries(st.sampled_from(["CUDA0", "CUDA1", "CPU"]), st.integers(0, 1 << 40)),
)


@given(st.lists(OBSERVATIONS, max_size=6), OPTIONS)
def test_what_is_learned_is_usable(stored: list[Observation], options: EstimateOptions) -> None:
    now, sizes = start(options), estimated(options)
    found = learned(stored, now, sizes)
    usable = [one for one in stored if one.start.backend == now.backend]
    assert (found is None) == (not usable)
    if found is None:
        return
    names = {device.name for device in sizes.devices}
    assert set(found.compute) <= names
    assert set(found.overhead_bytes) <= names
    assert all(ratio > 0 for ratio in found.compute.values())
    exact = [one for one in usable if (one.start.engine, one.start.options) == (now.engine, now.options)]
    assert found.same == bool(exact)
    if exact:
        newest = max(one.at for one in exact)
        candidates = [one.footprint for one in exact if one.at == newest]
        bounds = {name: 5 * size for name, size in compute(options).items()}
        told = {name: round(ratio * compute(options)[name]) for name, ratio in found.compute.items()}
        assert any(
            all(abs(told[d.name] - min(d.compute_bytes, bounds[d.name])) <= 1 for d in f.devices if d.name in told)
            for f in candidates
        )
    else:
        assert all(1 <= ratio <= 5 for ratio in found.compute.values())


@given(st.permutations([observed(ONE, 1.5, at=1), observed(TWO, 1.7, at=2), observed(ONE, 1.9, at=3, engine="two")]))
def test_the_order_of_what_is_stored_does_not_matter(stored: list[Observation]) -> None:
    other = replace(ONE, ctx_size=512)
    assert learned(stored, start(other), estimated(other)) == learned(stored[::-1], start(other), estimated(other))


def test_which_observations_make_plans_smaller() -> None:
    assert lowers_plans(observed(ONE, 0.5))
    assert not lowers_plans(observed(ONE, 1.5))
    more = observed(ONE, 1.5)
    assert not lowers_plans(replace(more, overhead_bytes={"CPU": MIB}))
    assert lowers_plans(replace(more, overhead_bytes={"CUDA0": MIB})), "in place of the reserve"
