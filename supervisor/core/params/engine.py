"""The parameters that llama-server itself has, with its own bounds; where it has none, those that OpenAI documents.

Read from llama.cpp b11434: `tools/server/server-schema.cpp`, and `oaicompat_chat_params_parse` in
`tools/server/server-common.cpp`. It clamps some values without a word, and takes its default for others of a wrong
type. `top_k` may be -1, which it clamps to 0: both mean that all tokens count.
"""

from __future__ import annotations

from typing import Final

from supervisor.core.params.kinds import (
    ANY_NUMBER,
    FLAG,
    INT32,
    INT64,
    LIST,
    OBJECT,
    SHARE,
    TEXT,
    TEXTS,
    Either,
    Kind,
    ListOf,
    Number,
    OneOf,
    whole,
)
from supervisor.core.params.rows import Parameter
from supervisor.core.params.thinking import EFFORT, TOOL_CHOICE

_LLAMA: Final = "llama-server"
_OPENAI: Final = "OpenAI"
_BOTH: Final = "OpenAI, llama-server"
_BIAS: Final = Either((OBJECT, ListOf(LIST, "pairs")))


def _sampling(name: str, kind: Kind, whose: str = _LLAMA) -> Parameter:
    return Parameter(name, whose, kind, default_for=name)


ENGINE: Final[tuple[Parameter, ...]] = (
    Parameter("max_tokens", _BOTH, whole(-1), default_for="max_tokens"),
    Parameter("max_completion_tokens", _OPENAI, whole(-1), default_for="max_tokens"),
    Parameter("max_output_tokens", "OpenAI (responses)", whole(-1), default_for="max_tokens"),
    Parameter("n_predict", _LLAMA, whole(-1), default_for="max_tokens"),
    _sampling("temperature", Number(0), _BOTH),
    _sampling("top_p", SHARE, _BOTH),
    _sampling("top_k", whole(-1)),
    _sampling("min_p", SHARE),
    _sampling("top_n_sigma", ANY_NUMBER),
    _sampling("typical_p", Number(0)),
    _sampling("xtc_probability", SHARE),
    _sampling("xtc_threshold", SHARE),
    _sampling("dynatemp_range", ANY_NUMBER),
    _sampling("dynatemp_exponent", ANY_NUMBER),
    _sampling("repeat_penalty", Number(0, above=True)),
    _sampling("repeat_last_n", whole(0)),
    _sampling("frequency_penalty", Number(-2, 2), _BOTH),
    _sampling("presence_penalty", Number(-2, 2), _BOTH),
    _sampling("dry_multiplier", ANY_NUMBER),
    _sampling("dry_base", Number(1)),
    _sampling("dry_allowed_length", whole(0)),
    _sampling("dry_penalty_last_n", whole(0)),
    _sampling("dry_sequence_breakers", ListOf(TEXT, "texts", least=1)),
    _sampling("mirostat", whole(0, 2)),
    _sampling("mirostat_tau", ANY_NUMBER),
    _sampling("mirostat_eta", ANY_NUMBER),
    _sampling("adaptive_target", Number(most=1)),
    _sampling("adaptive_decay", Number(0, 0.99)),
    _sampling("min_keep", whole(0)),
    _sampling("samplers", Either((TEXTS, TEXT))),
    _sampling("seed", whole(-INT64 - 1, 2 * INT64 + 1), _BOTH),
    Parameter("logit_bias", _BOTH, _BIAS),
    Parameter("ignore_eos", _LLAMA, FLAG),
    Parameter("stop", _BOTH, Either((TEXT, TEXTS))),
    Parameter("n", _OPENAI, whole(1)),
    Parameter("n_cmpl", _LLAMA, whole(1)),
    Parameter("logprobs", _OPENAI, Either((FLAG, whole(0)))),
    Parameter("top_logprobs", _OPENAI, whole(0, 20)),
    Parameter("n_probs", _LLAMA, whole(0)),
    Parameter("post_sampling_probs", _LLAMA, FLAG),
    Parameter("stream", _BOTH, FLAG),
    Parameter("stream_options", _OPENAI, OBJECT),
    Parameter("return_progress", _LLAMA, FLAG),
    Parameter("return_tokens", _LLAMA, FLAG),
    Parameter("response_fields", _LLAMA, TEXTS),
    Parameter("timings_per_token", _LLAMA, FLAG),
    Parameter("verbose", _LLAMA, FLAG),
    Parameter("sse_ping_interval", _LLAMA, whole(-1)),
    Parameter("cache_prompt", _LLAMA, FLAG),
    Parameter("n_keep", _LLAMA, whole(-1)),
    Parameter("n_discard", _LLAMA, whole(0)),
    Parameter("n_indent", _LLAMA, whole(0)),
    Parameter("n_cache_reuse", _LLAMA, whole(0)),
    Parameter("t_max_predict_ms", _LLAMA, whole(-1, INT64)),
    Parameter("backend_sampling", _LLAMA, FLAG),
    Parameter("lora", _LLAMA, ListOf(OBJECT, "objects")),
    Parameter("grammar", _LLAMA, TEXT),
    Parameter("json_schema", _LLAMA, Either((OBJECT, FLAG))),
    Parameter("response_format", _OPENAI, OBJECT),
    Parameter("tools", "OpenAI, Anthropic", ListOf(OBJECT, "objects")),
    Parameter("tool_choice", "OpenAI, Anthropic", Either((TEXT, OBJECT)), TOOL_CHOICE),
    Parameter("parallel_tool_calls", _OPENAI, FLAG),
    Parameter("add_generation_prompt", _LLAMA, FLAG),
    Parameter("chat_template_kwargs", _LLAMA, OBJECT),
    Parameter("reasoning_effort", _OPENAI, TEXT, EFFORT),
    Parameter("reasoning_format", _LLAMA, OneOf(("none", "auto", "deepseek", "deepseek-legacy"))),
    Parameter("reasoning_budget_tokens", _LLAMA, whole(-1, INT32)),
    Parameter("thinking_budget_tokens", _LLAMA, whole(-1, INT32)),
    Parameter("reasoning_budget_message", _LLAMA, TEXT),
    Parameter("reasoning_control", _LLAMA, FLAG),
    Parameter("stop_sequences", "Anthropic", TEXTS),
)
"""The rows, in the order of the page."""
