"""Presets of llama-server's router → ours; and every option of llama-server that a command line may have."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config.imports import from_preset
from supervisor.config.imports.arguments import QUIET, read_arguments
from supervisor.config.load import load_settings
from supervisor.config.options import launch_options
from supervisor.config.settings import ModelOptions
from supervisor.config.write import as_text
from supervisor.core.launch import LaunchOptions, ModelFacts
from supervisor.core.launch.emit import typed_arguments
from supervisor.core.launch.rules import RULES

PRESET = """version = 1
; a comment
[*]
c = 4096
jinja = true
mmap = false
stop-timeout = 5
[ggml-org/MY-GGUF:Q8_0]
n-gpu-layers = 99
load-on-startup = true
temp = 0.7
[mine]
model = /x/y.gguf
LLAMA_ARG_CACHE_TYPE_K = q8_0
no-warmup = true
kv-offload = off
flash-attn = maybe
no sense
[bare]
"""


def test_sections_become_models_and_the_star_defaults(tmp_path: Path) -> None:
    found = from_preset(PRESET)
    assert found.data == {
        "defaults": {"ctx_size": 4096, "jinja": True, "load_mode": "none"},
        "models": {
            "ggml-org/MY-GGUF:Q8_0": {
                "source": "ggml-org/MY-GGUF:Q8_0",
                "preload": True,
                "n_gpu_layers": 99,
                "extra_args": ["--temp", "0.7"],
            },
            "mine": {"file": "/x/y.gguf", "cache_type_k": "q8_0", "extra_args": ["--no-warmup"], "kv_offload": False},
        },
    }
    path = tmp_path / "supervisor.yaml"
    path.write_text(as_text(found.data, found.notes))
    assert launch_options(load_settings(path, {}).models["mine"]).kv_offload is False


@pytest.mark.parametrize(
    "told", ["stop-timeout = 5", "--flash-attn: must be one of", "[bare]: names no model", "is neither a section"]
)
def test_what_cannot_be_carried_is_said(told: str) -> None:
    assert any(told in note for note in from_preset(PRESET).notes)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["-np", "auto", "-ngl", "all", "-t", "-1"], {"n_gpu_layers": 999}),
        (["-dev", "none", "-ts", "3/1"], {"device": [], "tensor_split": [3, 1]}),
        (["-fa", "--jinja"], {"flash_attn": "on", "jinja": True}),
        (["--mlock"], {"load_mode": "mmap+mlock"}),
        (["--lora-scaled", "/a:0.5,/b:2", "--lora", "/c"],
         {"lora": [{"path": "/a", "scale": 0.5}, {"path": "/b", "scale": 2}, {"path": "/c", "scale": 1}]}),
        (["--ctx-size=512", "--sleep-idle-seconds", "30"], {"ctx_size": 512, "ttl": 30}),
        (["-m", "/x", "-hf", "o/r", "--host", "0.0.0.0", "--port", "1"], {"file": "/x"}),
        (["--rope-scale", "2.5", "--override-kv", "a=int:1"],
         {"rope_scale": 2.5, "extra_args": ["--override-kv", "a=int:1"]}),
    ],
)  # fmt: skip
def test_arguments_and_what_they_come_to(arguments: list[str], settings: dict[str, object]) -> None:
    assert read_arguments(arguments).settings == settings


def test_an_adapter_without_its_scale_is_kept_and_said() -> None:
    read = read_arguments(["--lora-scaled", "/a,/b:0.5"])
    assert read.settings == {"lora": [{"path": "/a", "scale": 1}, {"path": "/b", "scale": 0.5}]}
    assert [note for note in read.notes if "/a: has no scale" in note]


@given(
    st.sampled_from(sorted(RULES)) | st.just("--of-a-newer-build"),
    st.lists(st.sampled_from(["5", "on", "x"]), max_size=2),
)
def test_no_argument_is_lost_without_a_word(flag: str, values: list[str]) -> None:
    """Each option is a setting, a note, or one that makes no sense behind a supervisor."""
    read = read_arguments([flag, *values])
    assert read.settings or read.notes or flag in QUIET


OPTIONS = LaunchOptions(
    ctx_size=8192, parallel=2, kv_unified=True, cache_type_k="q8_0", flash_attn="off", context_shift=False, threads=3,
    device=("CUDA0", "CUDA1"), n_gpu_layers=20, tensor_split=(3.0, 1.0), override_tensor=("exps=CPU",),
    load_mode="mlock", pooling="none", embeddings="on", jinja=True, chat_template_kwargs={"enable_thinking": False},
    rope_freq_base=5.5,
    spec_type=("ngram-mod", "draft-mtp"), spec_draft_n_max=4, swa_full=True, cpu_moe=True, repack=False,
)  # fmt: skip


def test_what_we_launch_is_read_back() -> None:
    read = read_arguments(typed_arguments(OPTIONS, ModelFacts(), None))
    assert read.notes == []
    assert launch_options(ModelOptions.model_validate(read.settings)) == OPTIONS
