"""The raw route: the engine renders the prompt and continues it, and its parser and grammar are left out.

`POST /apply-template` gives the prompt, `POST /completion` continues it; the answer's events become chunks of a chat.
Measured on llama-server b11434: the events of `/completion` end with one that has `stop`, there is no `[DONE]`; a token
that is no text is shown only if it is named in `preserved_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.recovery.typed import Chunk, Delta, Head, RawEvent, Usage
from supervisor.core.stream.chat import asks_for_one
from supervisor.core.toolcalls import REGISTRY

TEMPLATE_PATH: Final = "/apply-template"
COMPLETION_PATH: Final = "/completion"

_OF_CHAT: Final = frozenset({
    *(
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "model",
        "stream_options",
        "n",
        "chat_template_kwargs",
    ),
    *("max_tokens", "max_completion_tokens", "reasoning_format", "add_generation_prompt", "chat_template"),
    *("reasoning_effort", "reasoning_control", "thinking_forced_open", "functions", "function_call"),
})
_STREAMING: Final = frozenset({"stream", "stream_options", "return_progress"})
_REASONS: Final[Mapping[str, str]] = {"eos": "stop", "word": "stop", "limit": "length"}


def can_go_raw(body: Mapping[str, object]) -> bool:
    """Return whether a request can be answered without the engine's parser and grammar."""
    wanted = body.get("tool_choice")
    constrained = wanted == "required" or isinstance(wanted, Mapping)
    engine_s = ("response_format", "grammar", "json_schema", "logprobs", "n_probs", "continue_final_message")
    special = any(body.get(key) for key in engine_s) or _goes_on(body.get("messages"))
    return not constrained and not special and asks_for_one(body) and _is_text(body.get("messages"))


def template_request(body: Mapping[str, object]) -> dict[str, object]:
    """Return the request to `/apply-template`."""
    return {key: value for key, value in body.items() if key not in _STREAMING}


def completion_request(body: Mapping[str, object], prompt: str) -> dict[str, object]:
    """Return the request to `/completion`: the client's sampling, the prompt, and that markup be shown."""
    asked = {key: value for key, value in body.items() if key not in _OF_CHAT}
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    limit = {} if most is None else {"n_predict": most}
    return {
        **asked,
        **limit,
        "prompt": prompt,
        "stream": True,
        "return_progress": True,
        "preserved_tokens": _shown(prompt),
    }


def _shown(prompt: str) -> tuple[str, ...]:
    """Return the texts that may be tokens of their own, which are shown only on request."""
    return (*REGISTRY.tokens, *REGISTRY.turn_tokens(prompt))


def opens_thought(prompt: str) -> bool:
    """Return whether the prompt ends inside a think block."""
    return prompt.rstrip().endswith(tuple(REGISTRY.think))


class RawChunks:
    """The converter of `/completion` events into chunks of a chat.

    Args:
        head: `id`, `created`, `model` of the chunks.
        with_usage: the client asked for usage.
        with_role: the client has not had the role yet.
        with_stop_word: the last chunk tells the stop word, as the engine does where it is asked to be verbose.
    """

    def __init__(self, head: Head, *, with_usage: bool, with_role: bool, with_stop_word: bool = False) -> None:
        self._head: Head = {**head, "object": "chat.completion.chunk"}
        self._with_usage = with_usage
        self._with_role = with_role
        self._with_stop_word = with_stop_word
        self.done = False

    def feed(self, event: RawEvent) -> list[Chunk]:
        """Return the chunks of one event."""
        out: list[Chunk] = []
        progress: Chunk = {"prompt_progress": event["prompt_progress"]} if "prompt_progress" in event else {}
        if self._with_role or progress:
            self._with_role = False
            out.append({**self._chunk({"role": "assistant", "content": None}), **progress})
        text = event.get("content")
        if text:
            out.append(self._chunk({"content": text}))
        if event.get("stop"):
            self.done = True
            out += self._end(event)
        return out

    def _end(self, event: RawEvent) -> list[Chunk]:
        last: Chunk = self._chunk({}, _REASONS.get(event.get("stop_type", ""), "stop"))
        timings: Chunk = {"timings": event["timings"]} if "timings" in event else {}
        if self._with_stop_word:
            last["__verbose"] = {"stopping_word": event.get("stopping_word")}
        if not self._with_usage:
            return [{**last, **timings}]
        read, written = event.get("tokens_evaluated", 0), event.get("tokens_predicted", 0)
        cached = (event.get("timings") or {}).get("cache_n", 0)
        usage: Usage = {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return [last, {**self._head, "choices": [], "usage": usage, **timings}]

    def _chunk(self, delta: Delta, reason: str | None = None) -> Chunk:
        return {**self._head, "choices": [{"finish_reason": reason, "index": 0, "delta": delta}]}


def _goes_on(messages: object) -> bool:
    """Return whether the engine is to continue an answer that the client began.

    Only its parser knows where that ends.
    """
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, Mapping) and last.get("role") == "assistant"


def _is_text(messages: object) -> bool:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        parts = content if isinstance(content, list) else ()
        if any(not isinstance(part, Mapping) or part.get("type") != "text" for part in parts):
            return False
    return True
