"""Refusals, placement, overrides, growth and what else an option changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from supervisor.core.memory import EstimateOptions, Growth, MemoryEstimate, Refusal, estimate, max_context
from supervisor.core.memory.patterns import BadPattern, check_override, check_pattern, matcher
from supervisor.core.memory.placement import place_layers
from supervisor.core.spec import ModelSpec, lookup
from tests.core.memory.support import MIB, estimated, spec_of

TWO = EstimateOptions(ctx_size=8192, parallel=1, devices=("GPU0", "GPU1"), tensor_split=(1, 1))
ONE = EstimateOptions(ctx_size=8192, parallel=1)

LLAMA = spec_of("llama-3.1-8b")
GEMMA = spec_of("gemma-3-27b")
DEEPSEEK = spec_of("deepseek-v3")
QWEN = spec_of("qwen3-30b-a3b")
GROK = spec_of("grok+experts/wide")
ENDLESS = replace(
    LLAMA, tensors=tuple(replace(LLAMA.tensors[0], name=f"blk.0.{number}.weight") for number in range(1 << 16))
)
NARROW = spec_of("step35+experts/upstream")  # heads of 80


@pytest.mark.parametrize(
    ("spec", "options", "code"),
    [
        (LLAMA, replace(ONE, cache_type_v="q8_0", flash_attn="off"), "quantized_v_needs_flash_attention"),
        (GROK, replace(ONE, cache_type_k="q8_0", cache_type_v="q8_0"), "quantized_v_needs_flash_attention"),
        (DEEPSEEK, replace(ONE, cache_type_k="q8_0"), "cache_types_differ"),
        (spec_of("deepseek4+experts/wide"), replace(ONE, cache_type_k="q8_0"), "cache_types_differ"),
        (NARROW, replace(ONE, cache_type_k="q8_0"), "cache_type_block"),
        (NARROW, replace(ONE, cache_type_v="q4_0"), "cache_type_block"),
        (LLAMA, replace(ONE, cache_type_k="q6_K"), "unknown_cache_type"),
        (LLAMA, replace(ONE, parallel=257), "too_many_slots"),
        (LLAMA, replace(ONE, speculative="draft-mtp"), "no_nextn_blocks"),
        (LLAMA, replace(ONE, override_tensors=(("ffn", "CUDA7"),)), "unknown_buffer_type"),
        (LLAMA, replace(ONE, override_tensors=(("(", "CPU"),)), "bad_pattern"),
        (LLAMA, replace(ONE, override_tensors=(("x" * 512, "CPU"),) * 4096), "too_many_overrides"),
        (ENDLESS, replace(ONE, override_tensors=(("x", "CPU"),)), "too_many_overrides"),
        (replace(LLAMA, vocab_only=True), ONE, "vocabulary_only"),
        (replace(LLAMA, n_ctx_train=0), ONE, "no_context"),
        (replace(LLAMA, architecture=lookup("gemma4-assistant")), ONE, "draft_only"),
        (replace(LLAMA, architecture=lookup("clip")), ONE, "projector"),
    ],
)
def test_what_the_engine_would_refuse_is_a_reason(spec: ModelSpec, options: EstimateOptions, code: str) -> None:
    found = estimate(spec, options)
    assert isinstance(found, Refusal)
    assert found.code == code
    assert found.message.endswith(".")


def test_nothing_fits_what_is_refused() -> None:
    assert max_context(LLAMA, replace(ONE, cache_type_k="q6_K"), 1 << 50) is None


def test_tied_embeddings_are_allocated_twice_on_a_device_and_once_on_the_host() -> None:
    embedding = next(tensor.n_bytes for tensor in GEMMA.tensors if tensor.name == "token_embd.weight")
    device, host = estimated(GEMMA, ONE), estimated(GEMMA, replace(ONE, devices=()))
    assert device.weights_bytes - host.weights_bytes == embedding


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (TWO, [0] * 17 + [1] * 16),
        (replace(TWO, tensor_split=(3, 1)), [0] * 25 + [1] * 8),
        (replace(TWO, n_gpu_layers=20), [-1] * 13 + [0] * 10 + [1] * 10),
        (replace(TWO, tensor_split=()), [0] * 17 + [1] * 16),
        (replace(TWO, n_gpu_layers=0), [-1] * 33),
        (replace(ONE, n_gpu_layers=3), [-1] * 30 + [0] * 3),
        (replace(ONE, n_gpu_layers=99), [0] * 33),
        (replace(ONE, n_gpu_layers=-1), [0] * 33),
        (replace(ONE, devices=()), [-1] * 33),
    ],
)
def test_layers_go_where_llama_cpp_puts_them(options: EstimateOptions, expected: list[int]) -> None:
    """32 layers and the output."""
    assert list(place_layers(LLAMA, options)) == expected


def test_experts_on_the_host_leave_caches_where_they_are() -> None:
    all_, some = estimated(QWEN, replace(ONE, cpu_moe=True)), estimated(QWEN, replace(ONE, n_cpu_moe=10))
    none = estimated(QWEN, ONE)
    on_device = [found.devices[0].weights_bytes for found in (all_, some, none)]
    assert on_device == sorted(on_device)
    assert {found.devices[0].kv_bytes for found in (all_, some, none)} == {none.kv_bytes}
    assert {found.weights_bytes for found in (all_, some, none)} == {none.weights_bytes}


def test_an_override_does_what_the_named_option_does() -> None:
    pattern = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
    by_hand = estimated(QWEN, replace(ONE, override_tensors=((pattern, "CPU"),)))
    named = estimated(QWEN, replace(ONE, cpu_moe=True))
    assert by_hand.devices[0].weights_bytes == named.devices[0].weights_bytes
    assert by_hand.layers == named.layers


def test_the_first_override_that_is_found_counts() -> None:
    patterns = ((r"blk\.0\.", "GPU1"), (r"ffn", "CPU"))
    found = estimated(LLAMA, replace(TWO, override_tensors=patterns))
    plain = estimated(LLAMA, TWO)
    assert found.devices[1].weights_bytes != plain.devices[1].weights_bytes
    assert found.devices[2].weights_bytes > plain.devices[2].weights_bytes
    assert found.weights_bytes == plain.weights_bytes


def test_caches_stay_on_the_host_where_asked() -> None:
    found = estimated(LLAMA, replace(ONE, offload_kv=False))
    assert [device.kv_bytes for device in found.devices] == [0, 1024 * MIB]


def test_nextn_blocks_count_only_for_drafting() -> None:
    spec = spec_of("glm4moe+experts+nextn/wide")
    plain, drafting = estimated(spec, ONE), estimated(spec, replace(ONE, speculative="draft-mtp"))
    assert plain.layers[-1].kind == "nextn"
    assert plain.layers[-1].weights_bytes == plain.layers[-1].kv_bytes == 0
    assert drafting.layers[-1].weights_bytes > 0
    assert drafting.layers[-1].kv_bytes > 0
    assert drafting.output_bytes == 2 * plain.output_bytes


def test_a_quantized_draft_has_types_of_its_own() -> None:
    spec = spec_of("glm4moe+experts+nextn/wide")
    drafting = replace(ONE, speculative="draft-mtp", cache_type_k="q8_0", cache_type_v="q8_0")
    layers = estimated(spec, drafting).layers
    assert layers[-1].kv_bytes * 17 == layers[0].kv_bytes * 32  # f16 beside q8_0


def test_cuda_wants_copies_of_other_caches_than_f16() -> None:
    long = EstimateOptions(ctx_size=131072, parallel=1, cache_type_k="q8_0", cache_type_v="q8_0", backend="cuda")
    more = estimated(LLAMA, long).compute_bytes - estimated(LLAMA, replace(long, backend="")).compute_bytes
    assert more == pytest.approx(512 * MIB, rel=0.001)
    assert any("not as measured" in note for note in estimated(LLAMA, long).notes)


def test_metal_wants_copies_of_every_cache() -> None:
    long = EstimateOptions(ctx_size=131072, parallel=1, backend="metal")
    more = estimated(LLAMA, long).compute_bytes - estimated(LLAMA, replace(long, backend="")).compute_bytes
    assert more > 512 * MIB


@pytest.mark.parametrize("backend", ["cuda", "vulkan", "metal"])
def test_experts_of_the_host_are_computed_on_the_first_device(backend: str) -> None:
    """One tensor of experts after the other is copied there; what surrounds it is counted too."""
    moved = replace(ONE, cpu_moe=True, backend=backend)
    largest = max(tensor.n_bytes or 0 for tensor in QWEN.tensors if "exps" in tensor.name)
    more = estimated(QWEN, moved).compute_bytes - estimated(QWEN, replace(moved, op_offload=False)).compute_bytes
    assert 0.5 * largest < more < 1.5 * largest
    assert (
        estimated(QWEN, moved).host_compute_bytes < estimated(QWEN, replace(moved, op_offload=False)).host_compute_bytes
    )
    assert estimated(QWEN, replace(moved, ubatch_size=16)).compute_bytes < largest  # too small a batch to be worth it


def test_layers_of_the_host_are_computed_on_the_first_device() -> None:
    some = replace(ONE, n_gpu_layers=20, backend="vulkan")
    assert estimated(LLAMA, some).compute_bytes > estimated(LLAMA, replace(some, backend="")).compute_bytes
    assert estimated(LLAMA, some).host_compute_bytes < estimated(LLAMA, replace(some, backend="")).host_compute_bytes


def test_a_tensor_too_large_for_vulkan_stays_on_the_host() -> None:
    """Kimi K2's experts in Q8_0 or with gate and up in one tensor are above what one binding holds."""
    kimi = spec_of("kimi-k2")
    host = {backend: estimated(kimi, replace(ONE, backend=backend)).devices[-1] for backend in ("cuda", "vulkan")}
    assert host["vulkan"].weights_bytes > host["cuda"].weights_bytes + 300 * 1024 * MIB


def test_nodes_that_a_device_does_not_know_cost_four_copies_for_each_layer_in_a_pipeline() -> None:
    mamba = spec_of("mamba-2.8b")
    two = replace(ONE, devices=("Vulkan0", "Vulkan1"), backend="vulkan")
    one = replace(two, devices=("Vulkan0",))
    assert estimated(mamba, two).host_compute_bytes > 100 * estimated(mamba, one).host_compute_bytes


def test_back_ends_together_have_whatever_takes_more() -> None:
    both = replace(ONE, backend="cuda,vulkan")
    most = max(estimated(LLAMA, replace(ONE, backend=name)).total_bytes for name in ("cuda", "vulkan"))
    assert estimated(LLAMA, both).total_bytes >= most


def test_memory_that_grows_is_not_in_the_total() -> None:
    spec = spec_of("qwen3-next-80b-a3b")
    found = estimated(spec, EstimateOptions(ctx_size=8192))
    growth = {item.name: item.max_bytes or 0 for item in found.host_growth}
    assert growth["prompt cache"] == 8192 * MIB
    assert growth["context checkpoints"] / MIB == pytest.approx(32 * 301.5, rel=0.001)
    assert found.total_bytes == sum(device.total_bytes for device in found.devices) + found.output_bytes


def test_growth_without_limit_and_without_any() -> None:
    unlimited = estimated(LLAMA, replace(ONE, cache_ram=-1)).host_growth
    assert Growth("prompt cache", None) in unlimited
    names = {growth.name for growth in estimated(LLAMA, replace(ONE, cache_ram=0)).host_growth}
    assert "prompt cache" not in names


def test_a_plain_cache_needs_no_checkpoints_and_an_encoder_no_prompt_cache() -> None:
    assert all(growth.name != "context checkpoints" for growth in estimated(LLAMA, ONE).host_growth)
    assert all(growth.name != "prompt cache" for growth in estimated(spec_of("bert/wide"), ONE).host_growth)


def test_repacked_weights_are_those_of_the_host() -> None:
    on_host = replace(ONE, devices=())
    sizes = {growth.name: growth.max_bytes or 0 for growth in estimated(LLAMA, on_host).host_growth}
    assert 0.8 < sizes["repacked weights"] / estimated(LLAMA, on_host).weights_bytes < 1
    names = {growth.name for growth in estimated(LLAMA, replace(on_host, repack=False)).host_growth}
    assert "repacked weights" not in names


def test_embeddings_put_out_whole_batches() -> None:
    found = estimated(LLAMA, replace(ONE, embeddings=True))
    growth = {item.name: item.max_bytes or 0 for item in found.host_growth}
    assert growth["output buffer"] == 511 * 4 * (128256 + 4096)
    assert "prompt cache" not in growth


def test_a_projector_is_counted_as_its_file() -> None:
    found = estimated(GEMMA, replace(ONE, mmproj=900 * MIB))
    assert found.projector_bytes == 900 * MIB
    assert found.total_bytes == estimated(GEMMA, ONE).total_bytes + 900 * MIB


def test_an_unknown_architecture_is_a_labelled_plain_estimate() -> None:
    spec = replace(LLAMA, architecture=replace(LLAMA.architecture, name="newcomer", known=False))
    found = estimated(spec, ONE)
    assert found.kv_bytes == 1024 * MIB
    assert any("newcomer is not known" in note for note in found.notes)


def test_a_context_is_padded_and_says_so() -> None:
    found = estimated(LLAMA, EstimateOptions(ctx_size=5000, parallel=3))
    assert (found.n_ctx, found.n_ctx_seq, found.n_seq) == (5376, 1792, 3)
    assert "The context is padded from 5000 to 5376 tokens." in found.notes


def test_the_inverse_of_a_budget() -> None:
    whole = estimated(LLAMA, replace(ONE, ctx_size=131072))
    assert max_context(LLAMA, ONE, whole.total_bytes) == 131072
    found = max_context(LLAMA, ONE, whole.total_bytes - 1)
    assert found == 131072 - 256
    assert max_context(LLAMA, ONE, 1 << 30) is None
    assert max_context(LLAMA, replace(ONE, parallel=4), 1 << 50) == 4 * 131072


def test_the_json_has_the_documented_names() -> None:
    found: Any = estimated(LLAMA, ONE).to_json()
    assert list(found) == [
        *("arch", "n_ctx", "n_ctx_seq", "n_seq", "weights_bytes", "kv_bytes", "recurrent_bytes", "compute_bytes"),
        *("host_compute_bytes", "output_bytes", "projector_bytes", "total_bytes", "layers", "non_layer_weights_bytes"),
        *("host_growth", "devices", "notes"),
    ]
    assert list(found["layers"][0]) == ["index", "kind", "weights_bytes", "kv_bytes", "recurrent_bytes"]
    assert json.loads(json.dumps(found))["devices"][0]["name"] == "GPU0"


def test_kinds_of_layers() -> None:
    def kinds(subject: str) -> set[str]:
        found = estimate(spec_of(subject), ONE)
        assert isinstance(found, MemoryEstimate)
        return {layer.kind for layer in found.layers}

    assert kinds("gemma-3-27b") == {"attention", "window"}
    assert kinds("deepseek-v3") == {"latent"}
    assert kinds("qwen3-next-80b-a3b") == {"attention", "recurrent"}
    assert kinds("nemotron-nano-9b-v2") == {"attention", "recurrent", "feed-forward"}
    assert kinds("falcon-h1-34b") == {"parallel"}


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?<!a)b", "(", "a" * 513, r"\pL{900}", "\ud800", "x{2000}"])
def test_what_no_bounded_time_is_enough_for_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadPattern):
        check_pattern(pattern)
    assert isinstance(estimate(LLAMA, replace(ONE, override_tensors=((pattern, "CPU"),))), Refusal)


def test_a_pattern_that_backtracks_without_end_is_matched_at_once() -> None:
    """With Python's own `re` this test would not come back."""
    hostile = tuple((f"(((.+)+)+)+#{number}", "CPU") for number in range(128))
    found = estimated(QWEN, replace(ONE, override_tensors=hostile))
    assert found.weights_bytes == estimated(QWEN, ONE).weights_bytes


def test_as_many_patterns_as_there_may_be_are_for_models_as_they_are() -> None:
    """Behind them a model may have more tensors than any that is known."""
    most = tuple((f"{number:03}{'x.*' * 100}", "CPU") for number in range(128))
    assert len(DEEPSEEK.tensors) > 1000
    for spec in (LLAMA, GEMMA, DEEPSEEK, QWEN):
        assert estimated(spec, replace(ONE, override_tensors=most)).weights_bytes == estimated(spec, ONE).weights_bytes
    assert estimated(ENDLESS, ONE).weights_bytes > 0


def test_patterns_are_found_in_order_and_names_are_remembered() -> None:
    found = matcher((r"blk\.1\.", "ffn", "^out"))
    assert [found.first(name) for name in ("blk.1.ffn_up", "blk.2.ffn_up", "output.weight", "token_embd")] == [
        *(0, 1, 2, None),
    ]
    assert matcher((r"blk\.1\.", "ffn", "^out")) is found


@pytest.mark.parametrize("text", ["exps", "=CPU", "exps=", "a=CPU,b=CPU", "(=CPU"])
def test_what_is_no_override(text: str) -> None:
    with pytest.raises(ValueError, match=r"PATTERN=BUFFER TYPE|cannot be used"):
        check_override(text)
    check_override(r"blk\.(1|2)\..*exps=CUDA0")
