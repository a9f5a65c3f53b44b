"""What LocalAI says of a model, as the options of a load."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.localai.loading import EVERY_LAYER, Wanted, lacking, wanted
from supervisor.core.localai.messages import ModelOptions
from supervisor.errors import InvalidRequest

QUIET: dict[str, Any] = {"mmap": True, "n_gpu_layers": 99999999}  # what LocalAI sends where its user says nothing


def options(**given: Any) -> dict[str, Any]:
    return wanted(ModelOptions(**{**QUIET, **given})).options


def test_what_nobody_set_is_the_plans_to_decide() -> None:
    assert wanted(ModelOptions(**QUIET)) == Wanted({}, {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"context_size": 4096}, {"ctx_size": 4096}),
        ({"n_batch": 512}, {"batch_size": 512, "ubatch_size": 512}),
        ({"threads": 4}, {"threads": 4}),
        ({"n_gpu_layers": 0}, {"n_gpu_layers": 0}),
        ({"n_gpu_layers": 20}, {"n_gpu_layers": 20}),
        ({"n_gpu_layers": EVERY_LAYER}, {}),
        ({"n_gpu_layers": -1}, {}),
        ({"main_gpu": "1"}, {"main_gpu": 1}),
        ({"tensor_split": "3,1"}, {"tensor_split": [3.0, 1.0]}),
        ({"mmap": False}, {"load_mode": "none"}),
        ({"mmap": False, "mlock": True}, {"load_mode": "mlock"}),
        ({"mlock": True}, {"load_mode": "mmap+mlock"}),
        ({"no_kv_offload": True}, {"kv_offload": False}),
        ({"cache_type_key": "q8_0", "cache_type_value": "q4_0"}, {"cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
        ({"flash_attention": "auto"}, {"flash_attn": "auto"}),
        ({"flash_attention": "True"}, {"flash_attn": "on"}),
        ({"flash_attention": "disabled"}, {"flash_attn": "off"}),
        ({"embeddings": True, "reranking": True}, {"embeddings": "on", "reranking": True}),
        ({"rope_scaling": "yarn", "rope_freq_base": 10000.0}, {"rope_scaling": "yarn", "rope_freq_base": 10000.0}),
        ({"yarn_beta_slow": 1.0, "yarn_beta_fast": 32.0}, {"yarn_beta_slow": 1.0, "yarn_beta_fast": 32.0}),
        ({"yarn_ext_factor": 0.10000000149011612}, {"yarn_ext_factor": 0.1}),
        (
            {"overrides": ("a=int:1", "b=bool:true")},
            {"extra_args": ["--override-kv", "a=int:1", "--override-kv", "b=bool:true"]},
        ),
    ],
)
def test_each_field_becomes_its_option(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert options(**given) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("parallel:4", {"parallel": 4}),
        ("n_parallel:4", {"parallel": 4}),  # what other programs call it
        ("kv-unified:true", {"kv_unified": True}),
        ("--jinja:off", {"jinja": False}),
        ("jinja", {"jinja": True}),
        ("ubatch_size:256", {"ubatch_size": 256}),
        ("device:CUDA0,CUDA1", {"device": ["CUDA0", "CUDA1"]}),
        ("flash_attn:true", {"flash_attn": "on"}),
        ("split_mode:row", {"split_mode": "row"}),
        ('chat_template_kwargs:{"a": 1}', {"chat_template_kwargs": {"a": 1}}),
        ("chat_template:a:b", {"chat_template": "a:b"}),
        ("cache_reuse:256", {"extra_args": ["--cache-reuse", "256"]}),
        ("warmup:false", {"extra_args": ["--no-warmup"]}),
        ("check_tensors", {"extra_args": ["--check-tensors"]}),
        ("cache_reuse:1", {"extra_args": ["--cache-reuse", "1"]}),
        ("extra_args:--a,--b", {"extra_args": ["--a", "--b"]}),
    ],
)
def test_options_have_llama_servers_names(said: str, expected: dict[str, Any]) -> None:
    assert options(options=(said,)) == expected


def test_engine_arguments_are_the_same_as_json_and_come_last() -> None:
    found = options(options=("parallel:2", "cache_reuse:1"), engine_args='{"parallel": 3, "warmup": false}')
    assert found == {"parallel": 3, "extra_args": ["--cache-reuse", "1", "--no-warmup"]}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"vocab_only": True}, "VocabOnly"),
        ({"main_gpu": "first"}, "MainGPU"),
        ({"tensor_split": "3,x"}, "TensorSplit"),
        ({"engine_args": "{"}, "EngineArgs"),
        ({"engine_args": "[1]"}, "EngineArgs"),
        ({"options": ("a b:1",)}, "a b"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        options(**given)
    assert raised.value.param == param
    assert param in raised.value.message


LINE = ("/bin/llama-server", "-m", "/m/a.gguf", "--mmproj", "/m/p.gguf", "--lora", "/m/x.gguf,/m/y.gguf")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"mmproj": "/m/p.gguf"}, None),
        ({"mmproj": "/m/../m/p.gguf"}, None),
        ({"lora_adapter": "/m/x.gguf", "lora_adapters": ("/m/y.gguf",)}, None),
        ({"mmproj": "/m/other.gguf"}, ("mmproj", "/m/other.gguf")),
        ({"draft_model": "/m/a.gguf"}, ("spec_draft_model", "/m/a.gguf")),  # it is there, but as the model
        ({"lora_adapters": ("/m/x.gguf", "/m/z.gguf")}, ("lora", "/m/z.gguf")),
    ],
)
def test_files_are_looked_for_under_their_options(given: dict[str, Any], expected: tuple[str, str] | None) -> None:
    def real(path: str) -> str:
        return path.replace("/m/../m/", "/m/")

    assert lacking(wanted(ModelOptions(**QUIET, **given)), LINE, real) == expected


def test_an_adapter_with_a_scale_is_found() -> None:
    wants = wanted(ModelOptions(**QUIET, lora_adapter="/m/x.gguf"))
    assert lacking(wants, ("--lora-scaled", "/m/x.gguf:0.5"), str) is None
