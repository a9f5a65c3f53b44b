"""A request for text, as a path of the daemon and the body that is sent there.

LocalAI always names temperature, top-k, min-p and the seed, so a zero of these is one. A zero of anything else is a
field that nobody set.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from supervisor.core.localai.messages import Message, PredictOptions
from supervisor.core.localai.numbers import as_written, json_of, object_of
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import InvalidRequest

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETION_PATH: Final = "/v1/completions"

_ALWAYS: Final = {"temperature": "temperature", "top_k": "top_k", "min_p": "min_p", "seed": "seed"}
_IF_SET: Final = {
    "top_p": "top_p",
    "typical_p": "typical_p",
    "repeat_last_n": "repeat",
    "repeat_penalty": "penalty",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "mirostat": "mirostat",
    "n_keep": "n_keep",
    "grammar": "grammar",
    "ignore_eos": "ignore_eos",
}
_REFUSED: Final = {
    "prompt_cache_path": ("PromptCachePath", "prompts are kept by `keep_kv` of the model"),
    "negative_prompt": ("NegativePrompt", "llama-server has none"),
    "videos": ("Videos", "llama-server takes images and sound"),
}
_IMAGES: Final = {"/9j/": "jpeg", "iVBOR": "png", "R0lG": "gif", "UklGR": "webp", "Qk": "bmp"}
_WAVE: Final = "UklGR"


class Ask(NamedTuple):
    """A request to the daemon."""

    path: str
    body: dict[str, Any]

    @property
    def is_chat(self) -> bool:
        """True if the answer is a message with its parts, and no bare text."""
        return self.path == CHAT_PATH


def ask(asked: PredictOptions, model: str, *, stream: bool) -> Ask:
    """Return the request of a model for text. Raises InvalidRequest for what cannot be done, by name."""
    for name, (field, why) in _REFUSED.items():
        if getattr(asked, name):
            raise InvalidRequest(f"{field} is not possible: {why}.", param=field)
    body = {"model": model, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
    if asked.use_tokenizer_template and asked.messages:
        return Ask(CHAT_PATH, {**body, **_sampling(asked), **_conversation(asked)})
    if asked.images or asked.audios:
        raise InvalidRequest(
            "Images and sound need the model's own template: set `template: {use_tokenizer_template: true}` in"
            " LocalAI's file of the model.",
            param="Images",
        )
    logprobs = {"logprobs": max(asked.logprobs, asked.top_logprobs)} if asked.logprobs > 0 else {}
    return Ask(COMPLETION_PATH, {**body, **_sampling(asked), "prompt": asked.prompt, **logprobs})


def _sampling(asked: PredictOptions) -> dict[str, Any]:
    """Return the parameters that a chat and a completion share."""
    found: dict[str, Any] = {ours: _plain(getattr(asked, theirs)) for ours, theirs in _ALWAYS.items()}
    found |= {ours: _plain(getattr(asked, theirs)) for ours, theirs in _IF_SET.items() if getattr(asked, theirs)}
    if asked.tokens > 0:
        found["max_tokens"] = asked.tokens
    if asked.mirostat:
        found |= {"mirostat_eta": as_written(asked.mirostat_eta), "mirostat_tau": as_written(asked.mirostat_tau)}
    if asked.stop_prompts:
        found["stop"] = list(asked.stop_prompts)
    if asked.logit_bias:
        found["logit_bias"] = object_of("LogitBias", asked.logit_bias)
    return found if asked.prompt_cache_all else {**found, "cache_prompt": False}


def _plain(value: Any) -> Any:
    return as_written(value) if isinstance(value, float) else value


def _conversation(asked: PredictOptions) -> dict[str, Any]:
    """Return what only a chat has. With a grammar there are no tools: LocalAI reads the calls itself."""
    messages = [_message(one) for one in asked.messages]
    _attach(messages, [*map(_image, asked.images), *map(_sound, asked.audios)])
    found: dict[str, Any] = {"messages": messages, **_thinking(asked.metadata)}
    if asked.tools and not asked.grammar:
        found["tools"] = json_of("Tools", asked.tools)
        found |= {"tool_choice": _choice(asked.tool_choice)} if asked.tool_choice else {}
    if asked.logprobs > 0:
        found |= {"logprobs": True, **({"top_logprobs": asked.top_logprobs} if asked.top_logprobs > 0 else {})}
    return found


def _message(one: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": one.role, "content": one.content}
    for name in ("name", "tool_call_id", "reasoning_content"):
        found |= {name: getattr(one, name)} if getattr(one, name) else {}
    return {**found, "tool_calls": json_of("tool_calls", one.tool_calls)} if one.tool_calls else found


def _attach(messages: list[dict[str, Any]], media: list[dict[str, Any]]) -> None:
    """Put media into the last message of the user. Raises InvalidRequest where there is none."""
    if not media:
        return
    last = next((one for one in reversed(messages) if one["role"] == "user"), None)
    if last is None:
        raise InvalidRequest("There is no message of a user to which images or sound could belong.", param="Messages")
    text = [{"type": "text", "text": last["content"]}] if last["content"] else []
    last["content"] = [*text, *media]


def _image(data: str) -> dict[str, Any]:
    kind = next((kind for begin, kind in _IMAGES.items() if data.startswith(begin)), "jpeg")
    return {"type": "image_url", "image_url": {"url": _unless_url(data, f"image/{kind}")}}


def _unless_url(data: str, kind: str) -> str:
    return data if data.startswith("data:") else f"data:{kind};base64,{data}"


def _sound(data: str) -> dict[str, Any]:
    plain = data.partition(",")[2] if data.startswith("data:") else data
    return {"type": "input_audio", "input_audio": {"data": plain, "format": _format(plain)}}


def _format(data: str) -> str:
    return "wav" if data.startswith(_WAVE) else "mp3"


def _choice(text: str) -> Any:
    """Return what is said of tools: JSON, or a bare word."""
    try:
        return parse(text)
    except NotJson:
        return text


def _thinking(metadata: dict[str, str]) -> dict[str, Any]:
    """Return the switches of reasoning; what a template's variable says itself counts more."""
    kwargs = metadata.get("chat_template_kwargs", "")
    found: dict[str, Any] = {"chat_template_kwargs": object_of("chat_template_kwargs", kwargs)} if kwargs else {}
    if metadata.get("enable_thinking"):
        found["enable_thinking"] = metadata["enable_thinking"].lower() == "true"
    if metadata.get("reasoning_effort"):
        found["reasoning_effort"] = metadata["reasoning_effort"]
    return found
