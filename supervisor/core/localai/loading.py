"""A model that LocalAI wants loaded, as the body of a load: its file, and launch options by llama-server's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from supervisor.core.localai.messages import ModelOptions
from supervisor.core.localai.numbers import as_written, object_of
from supervisor.core.options import LaunchOptions, Option, options_of
from supervisor.core.options.kinds import Choice, Many, Truth, Words
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import InvalidRequest

EVERY_LAYER: Final = 9999
"""So many layers, or more, stand for all: no place is asked for, and the plan decides."""

_ROWS: Final = {name: row for row in options_of(LaunchOptions) for name in (row.name, *row.others)}
_FLAGS: Final = {flag: row.name for row in options_of(LaunchOptions) for flag in row.on}
_YES: Final = frozenset({"true", "on", "yes", "1", "enabled"})
_NO: Final = frozenset({"false", "off", "no", "0", "disabled"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a load has to bring.

    Attributes:
        options: launch options, as a load takes them.
        files: by option, files that the engine has to have and that only the configuration can give it.
    """

    options: dict[str, Any]
    files: dict[str, str]


def wanted(asked: ModelOptions) -> Wanted:
    """Return what a load has to bring. Raises InvalidRequest for what cannot be done, by name."""
    _refuse_rest(asked)
    options = {**_sizes(asked), **_placed(asked), **_stretched(asked)}
    further = [word for override in asked.overrides for word in ("--override-kv", override)]
    for name, value in (*_pairs(asked.options), *_arguments(asked.engine_args).items()):
        _give(options, further, name, value)
    further = [*options.pop("extra_args", ()), *further]
    return Wanted({**options, "extra_args": further} if further else options, _files(asked))


def _refuse_rest(asked: ModelOptions) -> None:
    if asked.vocab_only:
        raise InvalidRequest("VocabOnly is not possible: a model is loaded to answer.", param="VocabOnly")


def _sizes(asked: ModelOptions) -> dict[str, Any]:
    """Return context, batch, threads, caches, attention and what is served."""
    given: dict[str, Any] = {
        "ctx_size": max(asked.context_size, 0),
        "batch_size": max(asked.n_batch, 0),
        "ubatch_size": max(asked.n_batch, 0),
        "threads": max(asked.threads, 0),
        "cache_type_k": asked.cache_type_key,
        "cache_type_v": asked.cache_type_value,
        "flash_attn": _switch(asked.flash_attention.lower()),
        "embeddings": "on" if asked.embeddings else "",
        "reranking": asked.reranking,
    }
    return {name: value for name, value in given.items() if value}


def _placed(asked: ModelOptions) -> dict[str, Any]:
    """Return where the model goes, and how its file is read."""
    found: dict[str, Any] = {}
    if 0 <= asked.n_gpu_layers < EVERY_LAYER:
        found["n_gpu_layers"] = asked.n_gpu_layers
    if asked.main_gpu:
        found["main_gpu"] = _number("MainGPU", asked.main_gpu, int)
    if asked.tensor_split:
        found["tensor_split"] = [_number("TensorSplit", one, float) for one in asked.tensor_split.split(",")]
    if asked.no_kv_offload:
        found["kv_offload"] = False
    if not asked.mmap or asked.mlock:
        found["load_mode"] = "mmap+mlock" if asked.mmap else "mlock" if asked.mlock else "none"
    return found


def _stretched(asked: ModelOptions) -> dict[str, Any]:
    """Return the settings of RoPE and YaRN that are not zero."""
    names = ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor")
    found: dict[str, Any] = {name: as_written(getattr(asked, name)) for name in names if getattr(asked, name)}
    found |= {"rope_scaling": asked.rope_scaling} if asked.rope_scaling else {}
    slow, fast = as_written(asked.yarn_beta_slow), as_written(asked.yarn_beta_fast)
    return found | ({"yarn_beta_slow": slow} if slow else {}) | ({"yarn_beta_fast": fast} if fast else {})


def _files(asked: ModelOptions) -> dict[str, str]:
    adapters = (asked.lora_adapter, *asked.lora_adapters)
    named = {"mmproj": asked.mmproj, "spec_draft_model": asked.draft_model}
    named |= {"lora" if number == 0 else f"lora {number}": path for number, path in enumerate(filter(None, adapters))}
    return {option: path for option, path in named.items() if path}


def lacking(wants: Wanted, words: Sequence[str], real: Callable[[str], str]) -> tuple[str, str] | None:
    """Return an option and its file that an engine was not launched with; None where it has all.

    words: the engine's command line. real: turns a path into the one by which files are told apart.
    """
    has = {(_FLAGS[flag], real(path)) for flag, word in pairwise(words) if flag in _FLAGS for path in _paths(word)}
    named = ((option.partition(" ")[0], path) for option, path in wants.files.items())
    return next(((option, path) for option, path in named if (option, real(path)) not in has), None)


def _paths(word: str) -> Iterator[str]:
    """Yield the paths that a word may name: as it is, in a list, and before a scale."""
    for one in (word, *word.split(",")):
        yield one
        yield one.rpartition(":")[0]


def _number(field: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise InvalidRequest(f"{field} is {text!r}, and has to be a number.", param=field) from None


def _pairs(options: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yield name and value of each `name:value`; a name alone is a switch that is on."""
    for text in options:
        name, colon, value = text.partition(":")
        yield name.strip(), value.strip() if colon else True


def _arguments(text: str) -> Mapping[str, object]:
    return object_of("EngineArgs", text) if text else {}


def _give(options: dict[str, Any], further: list[str], name: str, value: object) -> None:
    """Put one option where it belongs: among those of our table, or among the further arguments of llama-server."""
    plain = name.lstrip("-").replace("-", "_")
    row = _ROWS.get(plain)
    if row is not None:
        options[row.name] = _value(row, value)
        return
    if not plain.replace("_", "").isalnum():
        raise InvalidRequest(f"{name!r} is not the name of an option of llama-server.", param=name)
    flag, word = plain.replace("_", "-"), str(value).lower()
    if word in _YES - {"1"} or word in _NO - {"0"}:
        further.append(f"--{flag}" if word in _YES else f"--no-{flag}")
    else:
        further += [f"--{flag}", _text(value)]


def _value(row: Option, value: object) -> object:
    """Return a value in the form in which a load takes it; whether it is one, the daemon says."""
    match row.kind:
        case Truth() if str(value).lower() in _YES | _NO:
            return str(value).lower() in _YES
        case Choice():
            return _switch(str(value).lower()) if "on" in row.kind.words else value
        case Many() | Words() if isinstance(value, str) and not value.startswith("["):
            return [_parsed(one) for one in value.split(",")]
        case _:
            return _parsed(value) if isinstance(value, str) else value


def _switch(word: str) -> str:
    return "on" if word in _YES else "off" if word in _NO else word


def _parsed(text: str) -> object:
    """Return the value of JSON; of anything else the text itself."""
    try:
        return parse(text)
    except NotJson:
        return text


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)
