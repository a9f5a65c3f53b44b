"""The messages of LocalAI's `backend.Backend`, as far as a backend for text needs them.

The number of a field is what counts on the wire; fields that are not here are skipped by whoever reads a message. As in
proto3, what is not sent has its type's zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

SERVICE = "backend.Backend"

Double = Annotated[float, "double"]
Wide = Annotated[int, "uint64"]

_NUMBER = "number"  # where a field's metadata has it
_PLAIN = {str: "string", bytes: "bytes", bool: "bool", int: "int32", float: "float"}


def at(number: int, zero: Any) -> Any:
    """Return a field with its number and the value that it has where it is not sent."""
    given = {_NUMBER: number}
    return field(default_factory=dict, metadata=given) if zero == {} else field(default=zero, metadata=given)


@dataclass(frozen=True, slots=True)
class Row:
    """A field of a message.

    Attributes:
        kind: proto3's word for the type of its values; empty for a message.
        message: the message that its values are, if they are one.
        is_many, is_map: whether it is repeated; whether it maps texts to values.
    """

    name: str
    number: int
    kind: str
    message: type | None = None
    is_many: bool = False
    is_map: bool = False


def rows_of(message: type) -> tuple[Row, ...]:
    """Return the fields of a message."""
    return _rows(message)


@cache
def _rows(message: Any) -> tuple[Row, ...]:
    hints = get_type_hints(message, include_extras=True)
    return tuple(_row(one.name, one.metadata[_NUMBER], hints[one.name]) for one in fields(message))


def _row(name: str, number: int, hint: Any) -> Row:
    origin = get_origin(hint)
    is_many, is_map = origin is tuple, origin is dict
    value = get_args(hint)[is_map] if is_many or is_map else hint
    kind = get_args(value)[1] if get_origin(value) is Annotated else _PLAIN.get(value, "")
    return Row(name, number, kind, None if kind else value, is_many, is_map)


@dataclass(frozen=True, slots=True)
class Nothing:
    """A message without fields."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """A model that is to be loaded. `model` is its name in requests, `model_file` its file."""

    model: str = at(1, "")
    context_size: int = at(2, 0)
    n_batch: int = at(4, 0)
    mlock: bool = at(6, False)
    mmap: bool = at(7, False)
    vocab_only: bool = at(8, False)
    embeddings: bool = at(10, False)
    n_gpu_layers: int = at(12, 0)
    main_gpu: str = at(13, "")
    tensor_split: str = at(14, "")
    threads: int = at(15, 0)
    rope_freq_base: float = at(17, 0.0)
    rope_freq_scale: float = at(18, 0.0)
    model_file: str = at(21, "")
    lora_adapter: str = at(36, "")
    draft_model: str = at(39, "")
    mmproj: str = at(41, "")
    rope_scaling: str = at(43, "")
    yarn_ext_factor: float = at(44, 0.0)
    yarn_attn_factor: float = at(45, 0.0)
    yarn_beta_fast: float = at(46, 0.0)
    yarn_beta_slow: float = at(47, 0.0)
    flash_attention: str = at(56, "")
    no_kv_offload: bool = at(57, False)
    model_path: str = at(59, "")
    lora_adapters: tuple[str, ...] = at(60, ())
    options: tuple[str, ...] = at(62, ())
    cache_type_key: str = at(63, "")
    cache_type_value: str = at(64, "")
    reranking: bool = at(71, False)
    overrides: tuple[str, ...] = at(72, ())
    engine_args: str = at(73, "")


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation. `tool_calls` is JSON."""

    role: str = at(1, "")
    content: str = at(2, "")
    name: str = at(3, "")
    tool_call_id: str = at(4, "")
    reasoning_content: str = at(5, "")
    tool_calls: str = at(6, "")


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """A request. `logit_bias`, `tools` and `tool_choice` are JSON, media are in base64."""

    prompt: str = at(1, "")
    seed: int = at(2, 0)
    tokens: int = at(4, 0)
    top_k: int = at(5, 0)
    repeat: int = at(6, 0)
    n_keep: int = at(8, 0)
    temperature: float = at(9, 0.0)
    penalty: float = at(10, 0.0)
    stop_prompts: tuple[str, ...] = at(13, ())
    ignore_eos: bool = at(14, False)
    typical_p: float = at(16, 0.0)
    frequency_penalty: float = at(17, 0.0)
    presence_penalty: float = at(18, 0.0)
    mirostat: int = at(19, 0)
    mirostat_eta: float = at(20, 0.0)
    mirostat_tau: float = at(21, 0.0)
    logit_bias: str = at(23, "")
    prompt_cache_all: bool = at(27, False)
    grammar: str = at(29, "")
    top_p: float = at(32, 0.0)
    prompt_cache_path: str = at(33, "")
    embedding_tokens: tuple[int, ...] = at(35, ())
    embeddings: str = at(36, "")
    negative_prompt: str = at(40, "")
    images: tuple[str, ...] = at(42, ())
    use_tokenizer_template: bool = at(43, False)
    messages: tuple[Message, ...] = at(44, ())
    videos: tuple[str, ...] = at(45, ())
    audios: tuple[str, ...] = at(46, ())
    tools: str = at(48, "")
    tool_choice: str = at(49, "")
    logprobs: int = at(50, 0)
    top_logprobs: int = at(51, 0)
    metadata: dict[str, str] = at(52, {})
    min_p: float = at(53, 0.0)
    model_identity: str = at(54, "")


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call; pieces with one index are one call."""

    index: int = at(1, 0)
    id: str = at(2, "")
    name: str = at(3, "")
    arguments: str = at(4, "")


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """A piece of an answer in a conversation."""

    content: str = at(1, "")
    reasoning_content: str = at(2, "")
    tool_calls: tuple[ToolCallDelta, ...] = at(3, ())


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or a piece of one. Times are in milliseconds; `logprobs` is JSON in OpenAI's form."""

    message: bytes = at(1, b"")
    tokens: int = at(2, 0)
    prompt_tokens: int = at(3, 0)
    timing_prompt_processing: Double = at(4, 0.0)
    timing_token_generation: Double = at(5, 0.0)
    logprobs: bytes = at(7, b"")
    chat_deltas: tuple[ChatDelta, ...] = at(8, ())


@dataclass(frozen=True, slots=True)
class Result:
    """Whether something was done, and if not, why."""

    message: str = at(1, "")
    success: bool = at(2, False)


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """Vectors, one after another: `tokens` of them, each of `dim` numbers; `layout` 1: pooled."""

    embeddings: tuple[float, ...] = at(1, ())
    tokens: int = at(2, 0)
    dim: int = at(3, 0)
    prompt_tokens: int = at(4, 0)
    layout: int = at(5, 0)


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """Documents that are to be put in order."""

    query: str = at(1, "")
    documents: tuple[str, ...] = at(2, ())
    top_n: int = at(3, 0)
    model_identity: str = at(4, "")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request."""

    total_tokens: int = at(1, 0)
    prompt_tokens: int = at(2, 0)


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """A document with its place in the request."""

    index: int = at(1, 0)
    text: str = at(2, "")
    relevance_score: float = at(3, 0.0)


@dataclass(frozen=True, slots=True)
class RerankResult:
    """Documents, the best first."""

    usage: Usage = at(1, Usage())
    results: tuple[DocumentResult, ...] = at(2, ())


@dataclass(frozen=True, slots=True)
class Tokenization:
    """Tokens, and how many they are."""

    length: int = at(1, 0)
    tokens: tuple[int, ...] = at(2, ())


@dataclass(frozen=True, slots=True)
class DetokenizeRequest:
    """Tokens that are to become a text."""

    tokens: tuple[int, ...] = at(1, ())


@dataclass(frozen=True, slots=True)
class DetokenizeResponse:
    """The text of tokens."""

    content: str = at(1, "")


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Bytes, in all and by device."""

    total: Wide = at(1, 0)
    breakdown: dict[str, Wide] = at(2, {})


@dataclass(frozen=True, slots=True)
class StatusResponse:
    """What the backend does: 0 nothing is loaded, 1 at work, 2 ready, -1 failed."""

    state: int = at(1, 0)
    memory: MemoryUsage = at(2, MemoryUsage())


@dataclass(frozen=True, slots=True)
class MetricsResponse:
    """Figures of all requests together; the rate is that of the last answer."""

    tokens_per_second: float = at(3, 0.0)
    tokens_generated: int = at(4, 0)
    prompt_tokens_processed: int = at(5, 0)


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model's template does; `media_marker` stands in a prompt for an image or a sound."""

    supports_thinking: bool = at(1, False)
    rendered_template: str = at(2, "")
    media_marker: str = at(4, "")
