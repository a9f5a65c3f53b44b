"""The options of Ollama's API: what each takes, and what becomes of it here.

Read from Ollama 0.33 (`api/types.go`, `server/sched.go`). An option that nobody knows is left out, as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.params.fates import KEPT, Fate, Fields, Renamed, Unused
from supervisor.core.params.fit import PARAMETERS
from supervisor.core.params.kinds import ANY_NUMBER, ANYTHING, FLAG, Kind, whole
from supervisor.core.params.rows import Parameter
from supervisor.errors import InvalidRequest

CONTEXT: Final = "num_ctx"
"""The option that asks for a context of so many tokens."""

_OLLAMA: Final = "Ollama"
_LAUNCH: Final = "has no effect: a launch option, `{}`, set for the model (docs/launch.md)"


def _same(name: str) -> Parameter:
    return Parameter(name, _OLLAMA, PARAMETERS[name].kind)


def _launched(name: str, option: str, kind: Kind) -> Parameter:
    return Parameter(name, _OLLAMA, kind, Unused(_LAUNCH.format(option)))


def _gone(name: str) -> Parameter:
    return Parameter(name, _OLLAMA, ANYTHING, Unused("has no effect, as in Ollama itself"))


OLLAMA: Final[tuple[Parameter, ...]] = (
    Parameter("num_predict", _OLLAMA, whole(-1), Renamed("n_predict")),
    Parameter("num_keep", _OLLAMA, whole(-1), Renamed("n_keep")),
    Parameter(CONTEXT, _OLLAMA, whole(0), Unused("a larger context than the present one loads the model anew")),
    *map(_same, ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop")),
    *map(_same, ("repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty")),
    *map(_same, ("mirostat", "mirostat_tau", "mirostat_eta")),
    _launched("num_batch", "batch_size", whole(0)),
    _launched("num_thread", "threads", whole(0)),
    _launched("num_gpu", "n_gpu_layers", whole(-1)),
    _launched("main_gpu", "main_gpu", whole(0)),
    _launched("use_mmap", "load_mode", FLAG),
    _launched("use_mlock", "load_mode", FLAG),
    _launched("numa", "numa", FLAG),
    _launched("draft_num_predict", "spec_draft_n_max", whole(0)),
    _launched("rope_frequency_base", "rope_freq_base", ANY_NUMBER),
    _launched("rope_frequency_scale", "rope_freq_scale", ANY_NUMBER),
    *map(_gone, ("low_vram", "f16_kv", "vocab_only", "logits_all", "embedding_only", "num_gqa")),
    *map(_gone, ("tfs_z", "penalize_newline")),
)
"""The rows, in the order of the page."""

DEFAULTS: Final[Fields] = {"top_p": 0.9, "min_p": 0.0}
"""Ollama's defaults that are not llama-server's, by llama-server's names."""

_ROWS: Final[Mapping[str, Parameter]] = {row.name: row for row in OLLAMA}


def from_options(options: object) -> tuple[Fields, int | None]:
    """Return the parameters that the engine gets for a request's `options`, and the context that it asks for.

    Nulls ask for nothing. Raise InvalidRequest for a value of a wrong type, naming the option.
    """
    if options is None:
        return {}, None
    if not isinstance(options, Mapping):
        raise InvalidRequest("`options` must be an object.", param="options")
    fields: dict[str, object] = {}
    for name, value in options.items():
        row = _ROWS.get(name)
        if row is None or value is None:
            continue
        if not row.kind.admits(value):
            raise InvalidRequest(f"`options.{name}` must be {row.kind.text}.", param=f"options.{name}")
        fields |= _fields(row.fate, name, value)
    asked = options.get(CONTEXT)
    return fields, int(asked) if isinstance(asked, int | float) else None


def _fields(fate: Fate, name: str, value: object) -> Fields:
    return {name: value} if fate is KEPT else fate.fields(name, value, {})
