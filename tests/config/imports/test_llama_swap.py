"""llama-swap's config.yaml → ours, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.config.imports import Carried, from_llama_swap
from supervisor.config.load import load_settings
from supervisor.config.write import as_text
from supervisor.errors import ConfigError

CONFIG = """
healthCheckTimeout: 300
globalTTL: 600
unloadTimeout: 20
apiKeys: [short, long-enough-key]
macros:
  base: /opt/llama-server --port ${PORT} -ngl 99
  ctx: 8192
models:
  qwen:
    cmd: |
      # a comment
      ${base} -m /models/${MODEL_ID}.gguf \\
        -c ${ctx} --jinja -fa on --temp 0.6 -ot "exps=CPU" --chat-template-kwargs '{"enable_thinking": false}'
    aliases: [gpt]
    env: ["CUDA_VISIBLE_DEVICES=0", "LLAMA_ARG_CTX_SIZE=1"]
    ttl: 0
    name: Qwen
    filters: {stripParams: "temperature, model", setParams: {top_p: 0.9}, setParamsByID: {x: {}}}
    concurrencyLimit: 3
  emb:
    cmd: ${base} -m ${env.HOME}/e.gguf --embeddings --no-mmap --api-key x
    ttl: 60
  vllm: {cmd: docker run x}
groups:
  g1: {swap: true, exclusive: false, members: [qwen, emb, vllm]}
  g2: {persistent: true, members: [emb]}
  g3: {members: [qwen]}
  g4: {swap: false, members: [qwen]}
routing: {scheduler: {settings: {fifo: {priority: {qwen: 100}}}}}
hooks: {on_startup: {preload: [qwen, zz]}}
"""


def imported() -> Carried:
    return from_llama_swap(CONFIG)


def test_what_has_a_counterpart_is_carried() -> None:
    assert imported().data == {
        "server": {"api_keys": ["long-enough-key"]},
        "defaults": {"ttl": 600},
        "engine": {"stop_timeout": 20, "path": "/opt/llama-server"},
        "models": {
            "qwen": {
                "file": "/models/qwen.gguf",
                "n_gpu_layers": 99,
                "ctx_size": 8192,
                "jinja": True,
                "flash_attn": "on",
                "override_tensor": ["exps=CPU"],
                "chat_template_kwargs": {"enable_thinking": False},
                "extra_args": ["--temp", "0.6"],
                "aliases": ["gpt"],
                "env": {"CUDA_VISIBLE_DEVICES": "0"},
                "ttl": None,
                "filters": {"strip": ["temperature"], "set": {"top_p": 0.9}},
                "concurrency": 3,
                "preload": True,
                "priority": 30,
            },
            "emb": {
                "file": "${env.HOME}/e.gguf",
                "n_gpu_layers": 99,
                "embeddings": "on",
                "load_mode": "none",
                "ttl": 60,
                "pin": True,
            },
        },
        "groups": {
            "g1": {"members": ["qwen", "emb"], "rule": "exclusive"},
            "g3": {"members": ["qwen"], "rule": "alone"},
        },
    }


@pytest.mark.parametrize(
    "told",
    [
        "healthCheckTimeout",
        "fewer than 8 characters",
        "LLAMA_ARG_CTX_SIZE of env",
        "models.qwen: name",
        "setParamsByID",
        "--api-key x is left out",
        "its command runs 'docker'",
        "groups.g4",
        "there is no model 'zz'",
    ],
)
def test_what_has_none_is_said(told: str) -> None:
    assert any(told in note for note in imported().notes)


def test_the_result_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.yaml"
    found = imported()
    path.write_text(as_text(found.data, found.notes))
    settings = load_settings(path, {"HOME": "/h"})
    assert settings.models["emb"].file == "/h/e.gguf"
    assert settings.models["qwen"].flash_attn == "on"


@pytest.mark.parametrize(
    "text", ["models: 5", "models: {m: 5}", "groups: [1]", "apiKeys: x", "hooks: 1", 'models: {m: {cmd: "\'"}}', ""]
)
def test_odd_files_carry_nothing_and_do_not_fail(text: str) -> None:
    found: dict[str, Any] = from_llama_swap(text).data
    assert not found.get("models")


def test_a_file_that_is_no_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:2:1: not valid YAML"):
        from_llama_swap("a: 1\n]", "x.yaml")
