"""The model, its tokenizer and its template, as mlx-lm loads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx_lm

from .asked import Refused, Sampling

_MARK = "supervisor-asks-whether-this-is-shown"
_THINK = ("<think>", "</think>")
_SAMPLED = ("temperature", "top_k", "top_p", "min_p")
_RENDERING = frozenset({
    *("add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length"),
    *("padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize", "tokenizer_kwargs"),
    *("tools", "truncation"),
})
_TOOL = {
    "type": "function",
    "function": {"name": _MARK, "description": "", "parameters": {"type": "object", "properties": {}}},
}


class Model:
    """A model in a folder. Blocks while it is read; raises whatever mlx-lm does.

    Attributes:
        net: what is computed. tokenizer: mlx-lm's wrapper of one.
    """

    def __init__(self, folder: Path, template_args: Mapping[str, Any]) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        if config.get("model_file"):
            raise ValueError("it brings Python code of its own, which is not run")
        self.net, self.tokenizer = mlx_lm.load(str(folder), tokenizer_config={"trust_remote_code": False})
        self.folder = folder
        self._template_args = dict(template_args)

    @cached_property
    def marks(self) -> tuple[str, str] | None:
        """Texts that begin and end a thought; None: the model has none."""
        words = self.tokenizer
        if words.has_thinking:
            return words.think_start, words.think_end
        return _THINK if any(mark in self.template for mark in _THINK) else None  # spelled in several tokens

    @cached_property
    def ends(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return frozenset(self.tokenizer.eos_token_ids)

    @cached_property
    def n_vocab(self) -> int:
        """Tokens that the tokenizer knows."""
        return len(self.tokenizer.get_vocab())

    @cached_property
    def sampling(self) -> Sampling:
        """Defaults: those that the model's makers name, else llama-server's."""
        try:
            said = json.loads((self.folder / "generation_config.json").read_text("utf-8"))
        except (OSError, ValueError):
            said = {}
        numbers = {key: said[key] for key in _SAMPLED if type(said.get(key)) in {int, float}}
        return Sampling(**numbers)

    @cached_property
    def template(self) -> str:
        """The template; empty where there is none, or none that is one text."""
        found = self.tokenizer.chat_template
        return found if isinstance(found, str) else ""

    @cached_property
    def abilities(self) -> dict[str, bool]:
        """Facts of the template, found by rendering."""
        asks = {"role": "user", "content": "Hi"}
        return {
            "supports_tools": self._shows([asks], [_TOOL]),
            "supports_system_role": self._shows([{"role": "system", "content": _MARK}, asks], None),
        }

    def tokens_of(self, text: str, *, special: bool) -> list[int]:
        """Return the tokens of a text; special: with those that begin a prompt."""
        return list(self.tokenizer.encode(text, add_special_tokens=special))

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str(self.tokenizer.decode(list(tokens)))

    def render(self, body: Mapping[str, Any]) -> str:
        """Return the prompt of a chat. Raise Refused for messages that the template does not take."""
        messages = _messages(body.get("messages"))
        if not self.tokenizer.has_chat_template:
            raise Refused("The model has no chat template. Ask it on /v1/completions.", 501, "not_supported_error")
        args = {**self._template_args, **_variables(body.get("chat_template_kwargs"))}
        goes_on = messages[-1].get("role") == "assistant"
        wanted = {"add_generation_prompt": not goes_on, "continue_final_message": goes_on}
        tools = body.get("tools") if body.get("tool_choice") != "none" else None
        try:
            return str(
                self.tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, **wanted, **args)
            )
        except Exception as error:  # noqa: BLE001 - a template is a program of the model's maker
            raise Refused(f"The model's chat template does not take these messages: {str(error)[:500]}") from None

    def is_thinking(self, prompt: str) -> bool:
        """Return whether a prompt ends within a thought."""
        return self.marks is not None and prompt.rfind(self.marks[0]) > prompt.rfind(self.marks[1])

    def _shows(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> bool:
        try:
            return _MARK in self.render({"messages": list(messages), "tools": tools})
        except Refused:
            return False


def _variables(value: object) -> dict[str, Any]:
    """Return a client's variables. Those that would choose another template, or another result, are none."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not _RENDERING.isdisjoint(value):
        message = f"`chat_template_kwargs` must be an object, with none of {', '.join(sorted(_RENDERING))}."
        raise Refused(message, param="chat_template_kwargs")
    return value


def _messages(value: object) -> list[dict[str, Any]]:
    """Return messages as templates of Hugging Face want them: contents are text, arguments of calls objects."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise Refused("`messages` must be a list of messages, and not empty.", param="messages")
    return [_message(one) for one in value]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    found = {**message, "content": _content(message.get("content"))}
    if found.get("role") == "developer":
        found["role"] = "system"
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        found["tool_calls"] = [_call(one) for one in calls]
    return found


def _content(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    parts = value if isinstance(value, list) else [None]
    texts = []
    for part in parts:
        kind, text = (part.get("type"), part.get("text")) if isinstance(part, dict) else (None, None)
        if kind != "text" or not isinstance(text, str):
            raise Refused(
                f"A model for MLX reads text alone, no {kind or 'other content'}.", 501, "not_supported_error"
            )
        texts.append(text)
    return "\n".join(texts)


def _call(call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(arguments, str):
        return call
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": parsed}} if isinstance(parsed, dict) else call
