"""The model for MLX in a repository: its configuration, its tokenizer and its weights, and nothing that can be run.

mlx-lm reads `config.json` and `model*.safetensors` from the top folder, and tokenizers the files below (transformers'
own names). Python files and pickles are never among them, whatever a repository has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from supervisor.core.repository.entries import RepoFile, Variant

NAME: Final = "MLX"
"""The name of the variant, as a quantisation is named: `owner/repo:mlx`."""

CONFIG: Final = "config.json"
MOST_PARTS: Final = 4096
"""Files with weights that a model may have."""

_SMALL: Final = {  # with the most bytes that are downloaded of each
    CONFIG: 4 << 20,
    **dict.fromkeys(("generation_config.json", "hf_quant_config.json"), 4 << 20),
    **dict.fromkeys(("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"), 64 << 20),
    **dict.fromkeys(("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "spiece.model"), 256 << 20),
    **dict.fromkeys(("chat_template.jinja", "chat_template.json", "tiktoken.model"), 64 << 20),
}
_WEIGHTS = re.compile(r"model[^/]*\.safetensors")
_PART = re.compile(r"\A(?P<stem>[^/]+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")


def mlx_variant(files: Iterable[RepoFile]) -> Variant | None:
    """Return the model for MLX in the top folder of a repository; None if there is none."""
    top = {file.path: file for file in files if "/" not in file.path}
    weights = [top[path] for path in sorted(top) if _WEIGHTS.fullmatch(path)]
    if CONFIG not in top or not weights or len(weights) > MOST_PARTS:
        return None
    small = [top[name] for name, most in _SMALL.items() if name in top and (top[name].size or 0) <= most]
    if not small or small[0].path != CONFIG:
        return None
    missing = missing_parts([file.path for file in weights])
    return Variant(NAME, NAME, (*small, *weights), tuple(missing), NAME.lower())


def is_mlx(variant: Variant) -> bool:
    """Return whether a variant is in this format; one in GGUF never begins with a configuration."""
    return variant.parts[0].path == CONFIG


def missing_parts(names: Sequence[str]) -> list[str]:
    """Return the names of weights that are not among the others, by the numbers in their names, `MOST_PARTS` at most.

    Each of thousands of files may say that it is one of thousands.
    """
    there, wanted = set(names), dict[str, None]()
    for stem, count in sorted({(part["stem"], part["count"]) for part in map(_PART.fullmatch, names) if part}):
        numbers = range(1, min(int(count), MOST_PARTS - len(wanted)) + 1)
        wanted |= dict.fromkeys(f"{stem}-{number:05d}-of-{count}.safetensors" for number in numbers)
    return sorted(name for name in wanted if name not in there)
