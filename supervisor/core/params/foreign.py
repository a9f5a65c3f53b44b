"""The parameters of other servers: those that llama-server has under another name, and those that it lacks.

A parameter that nobody here knows passes as it is, as OpenAI's clients expect of fields that come later.
"""

from __future__ import annotations

from typing import Final

from supervisor.core.params.constraints import choice, configured, formatted, grammar, regex, schema, shaped, structured
from supervisor.core.params.fates import UNUSED, Constraint, Refused, Renamed
from supervisor.core.params.kinds import ANY_NUMBER, ANYTHING, FLAG, LIST, OBJECT, TEXT, Either, Number, whole
from supervisor.core.params.rows import Parameter
from supervisor.core.params.thinking import ON_OFF, PRESERVED, SEPARATE, THINKING

_VLLM: Final = "vLLM"
_MLX: Final = "mlx-lm"
_OPENAI: Final = "OpenAI"
_SGLANG: Final = "SGLang"
_NONE: Final = "llama-server has nothing like it; leave it out."
_SCHEMA: Final = Constraint("becomes `json_schema`", schema)
_REGEX: Final = Constraint("becomes `grammar` (see below)", regex)
_GRAMMAR: Final = Constraint("becomes `grammar`, in GBNF", grammar)
_TEMPLATE: Final = "The chat template has the roles; set `chat_template` for the model."
_STOP: Final = "Give the texts in `stop`."
_ADAPTERS: Final = "Configure `lora` for the model."

FOREIGN: Final[tuple[Parameter, ...]] = (
    Parameter(
        "repetition_penalty", "vLLM, mlx-lm, TGI", Number(0, above=True), Renamed("repeat_penalty"), "repeat_penalty"
    ),
    Parameter("repetition_context_size", _MLX, whole(0), Renamed("repeat_last_n"), "repeat_last_n"),
    Parameter("max_new_tokens", "TGI", whole(-1), Renamed("max_tokens"), "max_tokens"),
    Parameter("guided_json", _VLLM, Either((OBJECT, TEXT)), _SCHEMA),
    Parameter("guided_choice", _VLLM, LIST, Constraint("becomes `grammar`", choice)),
    Parameter("guided_regex", _VLLM, TEXT, _REGEX),
    Parameter("guided_grammar", _VLLM, TEXT, _GRAMMAR),
    Parameter(
        *("structured_outputs", _VLLM, OBJECT),
        Constraint("its `json`, `regex`, `choice`, `grammar` or `json_object` becomes as above", structured),
    ),
    Parameter("regex", _SGLANG, TEXT, _REGEX),
    Parameter("ebnf", _SGLANG, TEXT, _GRAMMAR),
    Parameter(
        "text",
        "OpenAI (responses)",
        Either((OBJECT, TEXT)),
        Constraint("its `format` becomes `response_format`", formatted),
    ),
    Parameter("output_format", "Anthropic", OBJECT, Constraint("becomes `response_format`", shaped)),
    Parameter(
        *("output_config", "Anthropic", OBJECT),
        Constraint("its `format` becomes `response_format`, its `effort` `reasoning_effort`", configured),
    ),
    Parameter("enable_thinking", "vLLM, mlx-lm, Qwen", FLAG, ON_OFF),
    Parameter("thinking", "Anthropic, DeepSeek, GLM", Either((FLAG, OBJECT)), THINKING),
    Parameter("preserve_thinking", "Qwen", FLAG, PRESERVED),
    Parameter("separate_reasoning", _SGLANG, FLAG, SEPARATE),
    Parameter("best_of", "OpenAI, vLLM", whole(1), Refused("Ask for `n` answers and choose.", (1,), drops=True)),
    Parameter("suffix", _OPENAI, TEXT, Refused("Use `/infill`.", ("",), drops=True)),
    Parameter("functions", _OPENAI, LIST, Refused("Give them in `tools`.")),
    Parameter("function_call", _OPENAI, ANYTHING, Refused("Say it in `tool_choice`.", ("auto", "none"))),
    Parameter("audio", _OPENAI, OBJECT, Refused("Answers are text.")),
    Parameter("background", _OPENAI, FLAG, Refused(_NONE, (False,))),
    Parameter("user", _OPENAI, ANYTHING, UNUSED),
    Parameter("store", _OPENAI, ANYTHING, UNUSED),
    Parameter("metadata", "OpenAI, Anthropic", ANYTHING, UNUSED),
    Parameter("service_tier", "OpenAI, Anthropic", ANYTHING, UNUSED),
    Parameter("prompt_cache_key", _OPENAI, ANYTHING, UNUSED),
    Parameter("safety_identifier", _OPENAI, ANYTHING, UNUSED),
    Parameter("min_tokens", _VLLM, whole(0), Refused(_NONE, (0,))),
    Parameter("use_beam_search", _VLLM, FLAG, Refused(_NONE, (False,))),
    Parameter("length_penalty", _VLLM, ANY_NUMBER, Refused(_NONE, (1,))),
    Parameter("stop_token_ids", _VLLM, LIST, Refused(_STOP, ([],))),
    Parameter("bad_words", _VLLM, LIST, Refused("Use `logit_bias`.", ([],))),
    Parameter("allowed_token_ids", _VLLM, LIST, Refused("Use `grammar`.", ([],))),
    Parameter("include_stop_str_in_output", _VLLM, FLAG, Refused(_NONE, (False,))),
    Parameter("prompt_logprobs", _VLLM, ANYTHING, Refused(_NONE, (0, False))),
    Parameter("truncate_prompt_tokens", _VLLM, whole(-1), Refused("Send a shorter prompt.")),
    Parameter("logits_processors", _VLLM, LIST, Refused(_NONE, ([],))),
    Parameter("priority", _VLLM, ANY_NUMBER, UNUSED),
    Parameter("skip_special_tokens", _VLLM, FLAG, Refused("It shows no special tokens.", (True,))),
    Parameter("spaces_between_special_tokens", _VLLM, FLAG, UNUSED),
    Parameter("guided_decoding_backend", _VLLM, ANYTHING, UNUSED),
    Parameter("role_mapping", _MLX, OBJECT, Refused(_TEMPLATE)),
    Parameter("adapters", _MLX, ANYTHING, Refused(_ADAPTERS)),
    Parameter("draft_model", _MLX, TEXT, Refused("Configure `spec_draft_model` for the model.", ("default_model",))),
    Parameter("num_draft_tokens", _MLX, whole(0), UNUSED),
)
"""The rows, in the order of the page."""
