"""Configurations with damage, and what becomes of each: `python -m tests.config.recorded` keeps it."""

from __future__ import annotations

import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from supervisor.config.change import with_options
from supervisor.config.document import to_yaml
from supervisor.config.imports import from_llama_swap, from_preset
from supervisor.config.imports.arguments import read_arguments
from supervisor.config.load import load
from supervisor.errors import ConfigError
from tests.config.imports import test_llama_swap
from tests.core.recorded.bodies import damaged, said
from tests.support.recorded import Dice, write

KEPT: Final = Path(__file__).parent / "data" / "damaged.json"
OF_EACH: Final = 60
_ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, 1, -1, 4096, 0.5, 1e300, "", "x", "8k", "10m", "2GiB", "on", "off", "auto", "f16", "none"),
    *(
        [],
        ["x"],
        [1],
        {},
        {"a": 1},
        "${env.A_KEY}",
        "${env.NOBODY}",
        "${NOBODY}",
        "a/b:Q4_0",
        "/models/x.gguf",
        "~/x",
        "127.0.0.1:50052",
    ),
)
_OURS: Final[dict[str, Any]] = {
    "server": {"host": "127.0.0.1", "port": 8080, "api_keys": ["${env.A_KEY}"],
               "allowed_origins": ["https://x.test"]},
    "defaults": {"ttl": "10m", "parallel": 2},
    "engine": {"stop_timeout": 60},
    "devices": {"reserve_mib": {"cuda": 512}, "rpc": ["127.0.0.1:50052"]},
    "models_dir": "/models",
    "macros": {"BASE": "/models"},
    "models": {
        "a": {"file": "${BASE}/a.gguf", "ctx_size": "8k", "aliases": ["b", "c"], "pin": True, "n_gpu_layers": 9,
              "device": ["CUDA0"], "tensor_split": [3, 1], "flash_attn": "on", "cache_type_k": "q8_0",
              "lora": [{"path": "/l.gguf", "scale": 0.5}], "env": {"X": "y"}, "extra_args": ["--no-warmup"],
              "filters": {"strip": ["seed"], "set": {"top_p": 0.9}}, "tool_calls": "auto"},
        "d": {"source": "owner/repo:Q4_K_M", "ttl": 60, "priority": 3},
        "e": {"source": "command", "command": ["run", "${PORT}"], "slots": 2, "ready": "/health",
              "memory": {"CPU": "512m"}},
    },
    "groups": {"g": {"members": ["a", "d"], "rule": "exclusive"}},
}  # fmt: skip
_PRESET: Final = """
[*]
ctx-size = 4096
[one]
model = /models/one.gguf
n-gpu-layers = 9
cache-type-k = q8_0
load-on-startup = true
[two]
hf-repo = owner/repo:Q4_0
no-mmap = true
temp = 0.5
"""
_ARGUMENTS: Final = (
    "-c 8k -m /m.gguf -ngl 99 -ts 3,1 -fa on --jinja --no-mmap -np 2 --host 0.0.0.0 --port 80 -ot exps=CPU --temp 0.6"
    " --lora-scaled /a:0.5,/b -dev CUDA0,CUDA1 -ctk q8_0 -ctv q8_0 --api-key x --mlock -b 64 -ub 32 -md /d.gguf --spec-"
    "draft-n-max 4 --chat-template-kwargs {} --reasoning off --embeddings --pooling mean -a name --unheard of"
)


def _loaded(data: object, folder: Path) -> object:
    path = folder / "supervisor.yaml"
    path.write_text(to_yaml(data), "utf-8")
    try:
        found = load(path, {"A_KEY": "long-enough-key", "HOME": "/srv/somebody"})
    except ConfigError as error:
        return ["refused", error.code, error.message.replace(str(folder), "FOLDER")]
    return found.settings.model_dump_json().replace(str(folder), "FOLDER")


def _lines(text: str, number: int) -> str:
    """A text in which lines are left out, doubled or changed."""
    dice = Dice(text, number)
    lines = text.splitlines()
    for _ in range(2):
        at = dice.below(len(lines))
        lines[at : at + 1] = dice.one_of(([], [lines[at]] * 2, [lines[at][: dice.below(len(lines[at]) + 1)]]))
    return "\n".join(lines)


def _words(number: int) -> list[str]:
    """Arguments in which words are left out, doubled or others."""
    dice = Dice("arguments", number)
    words = shlex.split(_ARGUMENTS)
    for _ in range(3):
        at = dice.below(len(words))
        words[at : at + 1] = dice.one_of(([], [words[at]] * 2, [dice.one_of(("x", "1", "-1", "", "a=b", "--x", "8k"))]))
    return words


def outcomes() -> dict[str, list[Any]]:
    """What becomes of configurations, of other programs' and of their arguments."""
    swap: dict[str, Any] = yaml.safe_load(test_llama_swap.CONFIG)
    ours = [_OURS, *(damaged(_OURS, "ours", number, odd=_ODD) for number in range(2 * OF_EACH))]
    theirs = [swap, *(damaged(swap, "swap", number, odd=_ODD) for number in range(2 * OF_EACH))]
    presets = [_PRESET, *(_lines(_PRESET, number) for number in range(OF_EACH))]
    arguments = [shlex.split(_ARGUMENTS), *map(_words, range(2 * OF_EACH))]
    changes: list[dict[str, object]] = [{"ctx_size": 4096, "device": ["A"]}, {}, {"threads": None}]
    sources = [{"source": "a/b"}, {"file": "/x.gguf"}]
    with tempfile.TemporaryDirectory() as folder:
        return {
            "ours": [said(partial(_loaded, one, Path(folder))) for one in ours],
            "llama-swap's": [said(partial(from_llama_swap, to_yaml(one))) for one in theirs],
            "a router's": [said(partial(from_preset, one)) for one in presets],
            "arguments": [said(partial(read_arguments, one)) for one in arguments],
            "changed": [
                said(partial(with_options, to_yaml(_OURS), name, source, change))
                for name in ("a", "new")
                for source in sources
                for change in changes
            ],
        }


if __name__ == "__main__":
    write(KEPT, outcomes())
    sys.exit(0)
