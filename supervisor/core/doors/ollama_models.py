"""Models as Ollama's API shows them: what its lists and `/api/show` say of a file."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.core.doors.names import digest_of, shown_name
from supervisor.core.doors.ollama_lines import moment
from supervisor.core.gguf import GgufHeader

Json = dict[str, object]

EVER: Final = 9_214_646_400.0
"""A moment far away, of a model that stays: seconds since 1970."""

_FIM: Final = ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id")
_FILE_TYPES: Final[Mapping[int | None, str]] = {  # `llama_ftype` of llama.cpp b11434 (include/llama.h)
    **dict(enumerate(("F32", "F16", "Q4_0", "Q4_1"))),
    **dict(enumerate(("Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M"), 7)),
    **dict(enumerate(("Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS"), 16)),
    **dict(enumerate(("IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16"), 24)),
    **dict(enumerate(("TQ1_0", "TQ2_0", "MXFP4_MOE", "NVFP4", "Q1_0", "Q2_0"), 36)),
}
_FEW: Final = 8  # values of an array that are shown


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of a model's file.

    Attributes:
        inputs: kinds of input: text, image, audio.
        pooling: llama.cpp's number, 0 for none; None where the file says nothing.
        tools, thinking: its template has them.
    """

    header: GgufHeader
    inputs: Collection[str] = ()
    pooling: int | None = None
    tools: bool = False
    thinking: bool = False

    @property
    def embeds(self) -> bool:
        """True if the model makes vectors and no texts."""
        return bool(self.pooling) and self.header.chat_template is None

    @property
    def inserts(self) -> bool:
        """True if the model has tokens to fill in the middle of a text."""
        return any(key in self.header.metadata for key in _FIM)

    @property
    def quantisation(self) -> str:
        """The name of what most of its weights are; `unknown` where the file says nothing."""
        return _FILE_TYPES.get(self.header.integer("general.file_type"), "unknown")


def capabilities(facts: FileFacts | None) -> list[str]:
    """Return what a model can do, in Ollama's words."""
    if facts is None:
        return ["completion"]
    if facts.embeds:
        return ["embedding"]
    found = {
        "completion": True,
        "tools": facts.tools,
        "insert": facts.inserts,
        "vision": "image" in facts.inputs,
        "audio": "audio" in facts.inputs,
        "thinking": facts.thinking,
    }
    return [name for name, has in found.items() if has]


def details(facts: FileFacts | None) -> Json:
    """Return the object `details`; empty texts where nothing is known."""
    header = None if facts is None else facts.header
    family = (header.architecture if header else None) or ""
    said: Json = {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": "" if header is None else _size(sum(one.n_elements for one in header.tensors)),
        "quantization_level": "" if facts is None else facts.quantisation,
    }
    if header is not None:
        said["context_length"] = header.n_ctx_train or 0
        said["embedding_length"] = header.integer(f"{family}.embedding_length") or 0
    return said


def listed(model: str, size: int | None, modified: float, facts: FileFacts | None) -> Json:
    """Return a model in `/api/tags`. modified: seconds since 1970."""
    name = shown_name(model)
    return {
        "name": name,
        "model": name,
        "modified_at": moment(modified),
        "size": size or 0,
        "digest": digest_of(model),
        "details": details(facts),
        "capabilities": capabilities(facts),
    }


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that has an engine. size, vram: bytes in all, and on GPUs; expires: seconds since 1970."""

    size: int
    vram: int
    expires: float
    context: int


def running(model: str, loaded: Loaded, facts: FileFacts | None) -> Json:
    """Return a model in `/api/ps`."""
    name = shown_name(model)
    return {
        "name": name,
        "model": name,
        "size": loaded.size,
        "digest": digest_of(model),
        "details": details(facts),
        "expires_at": moment(loaded.expires),
        "size_vram": loaded.vram,
        "context_length": loaded.context,
    }


def shown(model: str, modified: float, parameters: Mapping[str, object], facts: FileFacts, *, verbose: bool) -> Json:
    """Return the answer of `/api/show`. parameters: defaults of requests, by Ollama's names.

    verbose: long arrays of the header are shown as far as they are known.
    """
    header = facts.header
    template = header.chat_template or ""
    if facts.inserts:
        template = f"{template}{{# .Suffix #}}"  # clients look for it to learn whether the model fills in
    lines = [f"{name} {value}" for name, value in parameters.items()]
    return {
        "modelfile": "\n".join([f"FROM {model}", *(f"PARAMETER {one}" for one in lines)]) + "\n",
        "parameters": "\n".join(lines),
        "template": template,
        "details": details(facts),
        "model_info": _model_info(header, verbose=verbose),
        "capabilities": capabilities(facts),
        "modified_at": moment(modified),
        **({"tensors": _tensors(header)} if verbose else {}),
    }


def _model_info(header: GgufHeader, *, verbose: bool) -> Json:
    found: Json = {"general.parameter_count": sum(one.n_elements for one in header.tensors)}
    for key, value in header.metadata.items():
        if key == "tokenizer.chat_template":
            continue
        if isinstance(value, str | bool | int):
            found[key] = value
        elif isinstance(value, float):
            found[key] = value if math.isfinite(value) else None
        elif isinstance(value, tuple) and (verbose or len(value) <= _FEW):
            found[key] = [one for one in value if not isinstance(one, float) or math.isfinite(one)]
        else:
            found[key] = None
    return found


def _tensors(header: GgufHeader) -> list[Json]:
    return [{"name": one.name, "type": one.type_name, "shape": list(one.shape)} for one in header.tensors]


def _size(parameters: int) -> str:
    """Return a number of parameters as Ollama writes it."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if parameters >= size:
            return f"{parameters / size:.2f}{unit}" if unit in {"M", "K"} else f"{parameters / size:.1f}{unit}"
    return str(parameters)
