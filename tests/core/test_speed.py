"""The work of a token by kind, the fit of rates, and what is foretold by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.devices import Device
from supervisor.core.history.records import Spent
from supervisor.core.memory import EstimateOptions
from supervisor.core.spec import ModelSpec
from supervisor.core.speed import MachineSpeed, Rates, decode_work, foretell, prefill_work
from supervisor.core.speed.fit import Timed, fit
from supervisor.core.speed.foretell import Correction, decode_seconds, prefill_seconds
from supervisor.core.speed.learn import correction
from supervisor.core.speed.machine import over_network
from supervisor.core.speed.published import host_rates, published_rates
from supervisor.measuring.calibrate import read_model
from supervisor.measuring.maker import Shape, write_model

HOST = EstimateOptions(devices=())
PLAIN = Shape("q8_0", n_embd=256, n_layer=2, n_head=4, n_head_kv=2, n_ff=512, n_vocab=512)
EXPERTS = Shape("q4_0", n_embd=256, n_layer=2, n_head=4, n_head_kv=4, n_ff=256, n_vocab=512, experts=8, used=2)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return spec_of(tmp_path_factory.mktemp("plain"), PLAIN)


def spec_of(folder: Path, shape: Shape) -> ModelSpec:
    write_model(folder / "model.gguf", shape)
    return read_model(folder / "model.gguf")


def test_a_token_reads_all_weights_once(tmp_path: Path) -> None:
    work = decode_work(spec_of(tmp_path, PLAIN), HOST, 0)["CPU"]
    layer = 256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512
    assert work["read:q8_0"] == (2 * layer + 256 * 512) * 34 // 32
    assert (work["layer"], work["token"], work["vocabulary"]) == (2, 1, 512)
    assert "read_experts" not in work


def test_of_experts_a_token_reads_those_in_use(tmp_path: Path) -> None:
    work = decode_work(spec_of(tmp_path, EXPERTS), HOST, 0)["CPU"]
    experts = 2 * 3 * 256 * 256 * 2 * 18 // 32
    rest = (2 * 4 * 256 * 256 + 256 * 512) * 18 // 32
    assert work["read_experts"] == experts
    assert work["read:q4_0"] == experts + rest
    assert work["read:f32"] == 2 * 256 * 8 * 4


def test_attention_grows_with_the_tokens_before(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, PLAIN)
    near, far = (decode_work(spec, HOST, depth)["CPU"] for depth in (0, 999))
    assert near["attend"] == 2 * 4 * (64 + 64)
    assert far["attend"] == 1000 * near["attend"]
    assert far["cache"] == 1000 * 2 * 2 * (64 + 64) * 2
    assert far["read:q8_0"] == near["read:q8_0"]


@pytest.mark.parametrize(
    ("threads", "depth", "counted"),
    [
        (1, 600, 601),
        (2, 255, 256),  # fewer than 512 cells: the threads share the heads
        (2, 256, 512),  # the first thread has 256 of 512, the other one a single one
        (2, 383, 512),
        (2, 511, 512),
        (2, 600, 768),
        (4, 256, 512),
        (3, 599, 768),
    ],
)
def test_the_host_s_threads_wait_for_the_one_with_the_most_cells(
    plain: ModelSpec, threads: int, depth: int, counted: int
) -> None:
    one = decode_work(plain, HOST, 0)["CPU"]["attend"]
    assert decode_work(plain, HOST, depth, threads)["CPU"]["attend"] == counted * one
    quantised = replace(HOST, cache_type_k="q8_0")
    assert decode_work(plain, quantised, depth, threads)["CPU"]["attend"] == (depth + 1) * one
    away = EstimateOptions(devices=("CUDA0",))
    assert decode_work(plain, away, depth, threads)["CUDA0"]["attend"] == (depth + 1) * one


@pytest.mark.parametrize(("heads", "rest"), [(4, 1.0), (2, 0.0), (1, 0.0)])
def test_of_a_head_what_fills_no_vector_counts_apart(tmp_path: Path, heads: int, rest: float) -> None:
    """Heads of 64, 128 and 256 elements."""
    work = decode_work(spec_of(tmp_path, replace(PLAIN, n_head=heads, n_head_kv=heads)), HOST, 9)["CPU"]
    assert work.get("attend_rest", 0.0) == rest * work["attend"]


def test_a_prompt_reads_weights_once_per_micro_batch_and_values_for_each_token(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, PLAIN)
    layer = 256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512
    values = 2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 512)
    for tokens, passes in ((16, 1), (512, 1), (513, 2)):
        work = prefill_work(spec, HOST, tokens)["CPU"]
        assert work["read_many"] == passes * (2 * layer + 256 * 512) * 34 // 32
        assert work["values_many"] == tokens * 2 * values + 256 + 512
    one, many = (prefill_work(spec_of(tmp_path, EXPERTS), HOST, tokens)["CPU"]["read_many"] for tokens in (1, 4))
    assert one < many == prefill_work(spec_of(tmp_path, EXPERTS), HOST, 400)["CPU"]["read_many"]


def test_a_prompt_sees_the_triangle_before_it_and_makes_one_output(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, PLAIN)
    work, behind = prefill_work(spec, HOST, 1000)["CPU"], prefill_work(spec, HOST, 1000, 500)["CPU"]
    layer = 256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512
    assert work["multiply_many:q8_0"] == 1000 * 2 * layer + 256 * 512
    assert work["attend_many"] == 2 * 4 * 128 * 1000 * 1001 / 2
    assert behind["attend_many"] - work["attend_many"] == 2 * 4 * 128 * 500 * 1000
    assert work["layer_many"] == 2 * 2  # two micro-batches of 512 at most


def test_work_goes_where_its_layers_are(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, EXPERTS)
    split = decode_work(spec, EstimateOptions(devices=("CUDA0",), n_gpu_layers=2), 10)
    assert (split["CPU"]["layer"], split["CUDA0"]["layer"]) == (1, 1)
    away = decode_work(spec, EstimateOptions(devices=("CUDA0",), cpu_moe=True), 10)
    assert "read_experts" not in away["CUDA0"]
    assert away["CPU"]["read_experts"] == 2 * 3 * 256 * 256 * 2 * 18 // 32
    assert "layer" not in away["CPU"]


def test_long_prompts_take_the_weights_of_the_host_to_the_device(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, EXPERTS)
    away = EstimateOptions(devices=("CUDA0",), cpu_moe=True)
    work = prefill_work(spec, away, 1000)
    assert work["CUDA0"]["copy"] == 2 * 2 * 3 * 8 * 256 * 256 * 18 // 32  # two micro-batches, all experts
    assert "experts_many:q4_0" not in work["CPU"]
    for options, tokens in ((away, 31), (replace(away, op_offload=False), 1000)):
        there = prefill_work(spec, options, tokens)
        assert there["CPU"]["experts_many:q4_0"] > 0
        assert "copy" not in there["CUDA0"]


def test_the_fit_finds_the_rates_that_made_the_times() -> None:
    truth = {"read:q8_0": 1e-10, "layer": 2e-5, "token": 1e-4}
    works = [{"read:q8_0": 1e6 * one, "layer": float(two), "token": 1.0} for one in (1, 50, 400) for two in (1, 8, 40)]
    runs = [Timed(work, sum(amount * truth[kind] for kind, amount in work.items())) for work in works]
    found = fit(runs, host_rates(4)).seconds
    assert {kind: found[kind] for kind in truth} == pytest.approx(truth, rel=0.05)
    assert found["state"] == host_rates(4).seconds["state"]


def test_kinds_that_no_run_tells_apart_share_the_time_as_in_the_guess() -> None:
    guess = Rates({"attend": 1e-9, "cache": 3e-9})
    found = fit([Timed({"attend": 1e6, "cache": 1e6}, 0.04)], guess).seconds
    assert found["cache"] == pytest.approx(3 * found["attend"], rel=0.01)
    assert found["cache"] + found["attend"] == pytest.approx(40e-9, rel=0.01)


def test_no_rate_is_below_zero() -> None:
    runs = [Timed({"read:q8_0": 1e6, "layer": 4.0}, 1.0), Timed({"read:q8_0": 2e6, "layer": 40.0}, 1.5)]
    assert min(fit(runs, host_rates(4)).seconds.values()) >= 0


def test_a_type_that_was_not_timed_counts_as_the_nearest_in_size() -> None:
    rates = Rates({"read:q4_0": 1.0, "read:f16": 3.0, "layer": 5.0})
    assert [rates.of(f"read:{kind}") for kind in ("iq4_xs", "bf16", "q4_0")] == [1.0, 3.0, 1.0]
    assert (rates.of("layer"), rates.of("cache")) == (5.0, 0.0)
    families = Rates({"read:q4_0": 1.0, "read:q4_K": 2.0, "read:q6_K": 3.0, "read:q8_0": 4.0})
    assert [families.of(f"read:{kind}") for kind in ("q5_K", "q3_K", "q5_0", "iq4_nl")] == [2.0, 2.0, 1.0, 1.0]


def test_more_to_read_or_to_see_is_never_faster(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, PLAIN)
    found = foretell(spec, HOST, MachineSpeed({"CPU": host_rates(4)}), 32768)
    assert found is not None
    speeds = list(found.decode_tokens_per_second.values())
    assert speeds == sorted(speeds, reverse=True)
    assert list(found.decode_tokens_per_second) == [0, 1024, 4096, 8192, 16384]
    assert found.source == "published"
    assert found.prefill_tokens_per_second == found.prompt_tokens / (found.first_token_seconds - 1 / speeds[0])


def test_a_correction_scales_and_is_named(tmp_path: Path) -> None:
    spec, machine = spec_of(tmp_path, PLAIN), MachineSpeed({"CPU": Rates(host_rates(4).seconds, "measured")})
    plain = foretell(spec, HOST, machine, 2000)
    slower = foretell(spec, HOST, machine, 2000, Correction(2.0, 4.0, learned=True))
    assert plain
    assert slower
    assert (plain.source, slower.source) == ("measured", "learned")
    assert slower.decode_tokens_per_second[0] == pytest.approx(plain.decode_tokens_per_second[0] / 4)
    assert slower.prefill_tokens_per_second == pytest.approx(plain.prefill_tokens_per_second / 2)


def test_nothing_is_said_of_devices_that_nothing_is_known_of(tmp_path: Path) -> None:
    assert foretell(spec_of(tmp_path, PLAIN), HOST, MachineSpeed(), 4096) is None


def test_a_known_name_counts_and_another_is_guessed_with_care() -> None:
    def read(description: str) -> float:
        return published_rates(Device("CUDA0", "cuda", description, 0, 0)).of("read:q8_0")

    assert read("NVIDIA H200") < read("NVIDIA H100 80GB HBM3") < read("NVIDIA GeForce RTX 4090") < read("unheard of")


def test_answered_requests_correct_what_is_foretold(tmp_path: Path) -> None:
    spec, machine = spec_of(tmp_path, PLAIN), MachineSpeed({"CPU": host_rates(4)})
    prompt, token = (prefill_seconds(spec, HOST, machine, 200, 100), decode_seconds(spec, HOST, machine, 310))
    slow = Spent(300, 100, 21, prompt_ms=prompt * 2000, predicted_ms=token * 20 * 3000)
    odd = replace(slow, predicted_ms=token * 20 * 3500)
    found = correction(spec, HOST, machine, [slow, odd, slow])
    assert [found.prefill, found.decode] == pytest.approx([2, 3])
    assert found.learned
    assert correction(spec, HOST, machine, [slow, slow]) == Correction()


@given(fast=st.floats(0.3, 1.5), slow=st.lists(st.floats(1.0, 2.5), max_size=9))
def test_busy_times_teach_nothing_where_a_third_of_the_requests_were_alone(
    plain: ModelSpec, fast: float, slow: list[float]
) -> None:
    spec, machine = plain, MachineSpeed({"CPU": host_rates(4)})
    prompt, token = (prefill_seconds(spec, HOST, machine, 300), decode_seconds(spec, HOST, machine, 310))

    def took(ratio: float) -> Spent:
        return Spent(300, 0, 21, prompt_ms=prompt * 1000 * ratio, predicted_ms=token * 20 * 1000 * ratio)

    alone = [took(fast)] * max(3, (len(slow) + 1) // 2)
    found = correction(spec, HOST, machine, [took(fast * one) for one in slow] + alone)
    assert [found.prefill, found.decode] == pytest.approx([fast, fast])


def test_requests_that_say_little_or_were_elsewhere_do_not_count(tmp_path: Path) -> None:
    spec, machine = spec_of(tmp_path, PLAIN), MachineSpeed({"CPU": host_rates(4)})
    elsewhere = Spent(300, 0, 21, prompt_ms=1e9, predicted_ms=1e9)
    for one in (Spent(), Spent(10, 0, 3, 5.0, 5.0), elsewhere):
        assert correction(spec, HOST, machine, [one] * 5) == Correction()


LENT = EstimateOptions(devices=("studio/CUDA0", "CUDA0"), n_gpu_layers=99, tensor_split=(1.0, 1.0), ubatch_size=512)


def test_a_pass_over_the_network_costs_round_trips(tmp_path: Path) -> None:
    spec, gpu = spec_of(tmp_path, PLAIN), published_rates(Device("CUDA0", "cuda", "NVIDIA H100", 0, 0))

    def of(round_trip_s: float | None) -> MachineSpeed:
        return MachineSpeed({"studio/CUDA0": over_network(gpu, round_trip_s), "CUDA0": gpu, "CPU": host_rates(4)})

    plain, far = of(None), of(0.005)
    assert decode_seconds(spec, LENT, far, 0) - decode_seconds(spec, LENT, plain, 0) == pytest.approx(1.7 * 0.005)
    more = prefill_seconds(spec, LENT, far, 1024) - prefill_seconds(spec, LENT, plain, 1024)
    assert more == pytest.approx(2 * 1.7 * 0.005), "once for each micro-batch"
    local = replace(LENT, devices=("CUDA1", "CUDA0"))
    assert "trip" not in decode_work(spec, local, 0)["CUDA1"]
