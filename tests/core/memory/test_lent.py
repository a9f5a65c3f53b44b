"""Caches that stay on the host: what devices that attend nevertheless copy of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.core.memory import EstimateOptions
from tests.core.memory.support import MIB, estimated, spec_of

HOST = EstimateOptions(ctx_size=8192, parallel=1, devices=("Vulkan0",), backend="vulkan", offload_kv=False)
LONG = replace(HOST, ctx_size=131072)
MASK = 2 * 512  # bytes for each cell, of a micro-batch


@pytest.mark.parametrize("backend", ["", "cuda", "vulkan", "metal"])
def test_a_device_copies_what_a_layer_attends_to(backend: str) -> None:
    """Eight heads of 128 in F16, keys and values; as measured on Vulkan: 672 MiB."""
    found = estimated(spec_of("llama-3.1-8b"), replace(LONG, backend=backend))
    assert found.devices[0].compute_bytes >= 131072 * (2 * 2 * 8 * 128 + MASK) + 32 * MIB


def test_the_copies_are_those_of_one_layer() -> None:
    found = estimated(spec_of("llama-3.1-8b"), LONG)
    assert found.devices[0].compute_bytes < 1.05 * 672 * MIB


def test_layers_that_share_a_cache_copy_it_at_once() -> None:
    """Three of Gemma 4 E4B's last eighteen layers see all of the context: 2,249 MiB as measured."""
    spec = spec_of("gemma-4-e4b")
    shares = [layer for layer, owns in enumerate(spec.kv_layers) if not owns and not spec.swa_layers[layer]]
    layer = max(layer.kv_bytes for layer in estimated(spec, LONG).layers)
    assert len(shares) == 3
    assert estimated(spec, LONG).devices[0].compute_bytes > (1 + len(shares)) * layer


def test_nothing_is_copied_where_caches_are_on_the_device() -> None:
    spec = spec_of("llama-3.1-8b")
    near = estimated(spec, replace(LONG, offload_kv=True)).devices[0].compute_bytes
    assert near < estimated(spec, LONG).devices[0].compute_bytes - 256 * MIB


def test_the_host_computes_its_experts_beside_its_caches() -> None:
    """Unless the first device does so with their weights."""
    spec = spec_of("mixtral-8x7b")
    moved = replace(LONG, cpu_moe=True)
    alone = estimated(spec, replace(moved, op_offload=False)).host_compute_bytes
    assert alone > estimated(spec, moved).host_compute_bytes + 100 * MIB


@pytest.mark.parametrize("model", ["mixtral-8x7b", "gpt-oss-20b"])
def test_experts_of_the_host_come_beside_the_copies(model: str) -> None:
    spec = spec_of(model)
    largest = max(tensor.n_bytes or 0 for tensor in spec.tensors if "exps" in tensor.name)
    layer = max(layer.kv_bytes for layer in estimated(spec, LONG).layers)
    found = estimated(spec, replace(LONG, cpu_moe=True)).devices[0].compute_bytes
    assert found > layer + min(largest, 131072 * MASK)
