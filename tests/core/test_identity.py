from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.gguf import ArraySummary, GgufHeader, GgufValue
from supervisor.core.learn.identity import backend_of, model_identity, options_hash, plain_settings
from supervisor.core.memory import EstimateOptions
from tests.support.headers import F16, header

Q8_0 = 8
METADATA: dict[str, GgufValue] = {
    "general.architecture": "llama",
    "general.name": "small",
    "llama.block_count": 2,
    "llama.attention.head_count_kv": (4, 2),
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.tokens": ArraySummary("string", 300),
}
TENSORS = {"token_embd.weight": (256, 300), "blk.0.attn_q.weight": (256, 256)}


def made(more: Mapping[str, GgufValue] = MappingProxyType({}), *, kind: int = F16) -> GgufHeader:
    return header({**METADATA, **more}, TENSORS, kind=kind)


def test_a_model_is_known_by_name_keys_and_tensors() -> None:
    one = model_identity(made())
    assert one == model_identity(made())
    assert one != model_identity(made(kind=Q8_0))
    assert one != model_identity(made({"general.name": "other"}))
    assert one != model_identity(made({"llama.block_count": 3}))


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 5000])
def test_it_is_the_hash_of_plain_json_however_many_tensors_and_keys_there_are(count: int) -> None:
    """What has been learned is kept under it."""
    keys: dict[str, GgufValue] = {f"llama.key_{number:05}": number for number in range(count)}
    one = header({"general.architecture": "llama", **keys}, {f"blk.{number}.w": (32, 2) for number in range(count)})
    tensors = sorted([tensor.name, list(tensor.shape), tensor.type] for tensor in one.tensors)
    text = json.dumps(["llama", None, [[key, value] for key, value in keys.items()], tensors], separators=(",", ":"))
    assert model_identity(one) == hashlib.sha256(text.encode()).hexdigest()[:32]


def test_what_does_not_change_memory_does_not_change_the_model() -> None:
    assert model_identity(made({"tokenizer.chat_template": "other"})) == model_identity(made())
    assert model_identity(made({"split.count": 2, "split.no": 0})) == model_identity(made())
    tensors = made().tensors
    assert model_identity(replace(made(), tensors=tensors[::-1], file_size=5)) == model_identity(made())


def test_options_count_in_any_order() -> None:
    settings = plain_settings(EstimateOptions(ctx_size=4096, tensor_split=(1.0, 2.0)))
    backwards = dict(reversed(list(settings.items())))
    assert options_hash(settings) == options_hash(backwards)


@given(
    st.sampled_from([
        EstimateOptions(ctx_size=8192),
        EstimateOptions(cache_type_k="q8_0"),
        EstimateOptions(devices=("CUDA0", "CUDA1")),
        EstimateOptions(n_gpu_layers=3),
        EstimateOptions(override_tensors=(("exps", "CPU"),)),
    ])
)
def test_an_option_changes_the_hash(options: EstimateOptions) -> None:
    assert options_hash(plain_settings(options)) != options_hash(plain_settings(EstimateOptions()))


def test_what_is_beside_the_options_changes_the_hash() -> None:
    base = EstimateOptions()
    all_of_them = [
        plain_settings(base),
        plain_settings(base, split_mode="none"),
        plain_settings(base, main_gpu=1),
        plain_settings(base, extra=("--lora", "x")),
    ]
    assert len({options_hash(settings) for settings in all_of_them}) == len(all_of_them)


def test_back_ends_are_the_kinds_of_devices() -> None:
    assert backend_of(()) == "cpu"
    assert backend_of(("CUDA1", "CUDA0")) == "cuda"
    assert backend_of(("RPC0", "Vulkan10")) == "rpc,vulkan"
    assert backend_of(("RPC0[127.0.0.1:50052]",)) == "rpc"
