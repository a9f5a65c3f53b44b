"""Requests and answers with damage, and what becomes of each: `python -m tests.core.recorded.bodies` keeps it."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from supervisor.core.doors import lmstudio, ollama_requests
from supervisor.core.doors.lmstudio import StatsVoice
from supervisor.core.doors.ollama_lines import ChatLines, GenerateLines
from supervisor.core.doors.shortened import Exceeded, shortened
from supervisor.core.doors.turned import Telling
from supervisor.core.params.fit import fit
from supervisor.core.params.ollama import from_options
from supervisor.core.params.settings import RequestSettings, sampling_defaults
from supervisor.core.recovery.emulate import TemplateFacts, emulated
from supervisor.core.recovery.help import asked_help, with_warnings
from supervisor.core.recovery.history import mended_input, mended_messages
from supervisor.core.recovery.messages_request import chat_of_messages
from supervisor.core.recovery.messages_voice import MessagesVoice
from supervisor.core.recovery.policy import asked_mode, offers_tools, only_named
from supervisor.core.recovery.raw import can_go_raw, completion_request, template_request
from supervisor.core.recovery.responses_request import chat_of_responses
from supervisor.core.recovery.responses_voice import ResponsesVoice, echoed
from supervisor.core.recovery.voices import ChatVoice
from supervisor.core.requests.affinity import affinity_of
from supervisor.core.requests.captured import without_media
from supervisor.core.requests.media import ends_with_a_medium, places
from supervisor.errors import SupervisorError
from tests.support.recorded import Dice, write

KEPT: Final = Path(__file__).parent / "data" / "bodies.json"
OF_EACH: Final = 40
TELLING: Final = Telling("m:latest", lambda: 0.0, lambda: (2.5, 0.5))
ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 7, 0.5, 1e300, "", "x", "none", "auto", "required", [], ["x"], [1, None], {}),
    *({"type": "text", "text": "t"}, {"type": "function"}, {"a": {"b": [1]}}, "user", "assistant", "tool", "system"),
)
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "look it up",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    },
}
_CALL: Final = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": "a"}'}}
_PICTURE: Final = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
_SAMPLING: Final = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 7, "stop": ["###"], "n": 1, "max_tokens": 9,
    "repetition_penalty": 1.1, "frequency_penalty": 0.2, "logprobs": True, "top_logprobs": 2, "logit_bias": {"5": -1},
}  # fmt: skip
_CONSTRAINTS: Final = {
    "guided_json": {"type": "object"}, "guided_choice": ["a", "b"], "guided_regex": "[a-c]{2}", "thinking": True,
    "structured_outputs": {"json": {"type": "object"}}, "output_config": {"effort": "low"}, "best_of": 1,
    "response_format": {"type": "json_object"}, "enable_thinking": False, "chat_template_kwargs": {"x": 1},
    "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}}, "reasoning_effort": "high",
}  # fmt: skip

REQUESTS: Final[Mapping[str, dict[str, Any]]] = {
    "chat": {
        "model": "m", "stream": True, "tools": [_TOOL], "tool_choice": "auto",
        "agent_help": {"nudge": 2, "repeats": True}, "tool_calls": "recover",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "See"}, _PICTURE]},
            {"role": "assistant", "content": None, "tool_calls": [_CALL], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {"role": "assistant", "content": "", "tool_calls": [{**_CALL, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c2", "content": "42"},
            {"role": "user", "content": "And now?"},
        ],
    },
    "sampling": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **_SAMPLING},
    "constraints": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **_CONSTRAINTS},
    "messages": {
        "model": "m", "max_tokens": 9, "stop_sequences": ["x"], "thinking": {"type": "enabled", "budget_tokens": 7},
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=a5145;Be brief."}],
        "metadata": {"user_id": "me"}, "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "tools": [{"name": "look", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"q": 1}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "42"}]},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
            ]},
        ],
    },
    "responses": {
        "model": "m", "instructions": "Be brief.", "max_output_tokens": 5, "reasoning": {"effort": "low"},
        "tool_choice": {"type": "function", "name": "look"}, "metadata": {"a": "b"}, "parallel_tool_calls": False,
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}, {"type": "web_search"}],
        "input": [
            {"role": "user", "content": [
                {"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": "https://x.test/a.png"},
            ]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"q": '},
            {"type": "function_call_output", "call_id": "a", "output": "42"},
        ],
    },
    "ollama": {
        "model": "m", "stream": False, "think": "high", "keep_alive": "5m", "format": {"type": "object"},
        "truncate": True, "logprobs": True, "top_logprobs": 2, "tools": [_TOOL], "system": "Be brief.", "prompt": "Hi",
        "images": ["AA=="], "input": ["a", "b"], "dimensions": 2, "suffix": "", "raw": False,
        "options": {"temperature": 0.5, "num_ctx": 2048, "num_predict": 9, "stop": ["x"], "seed": 1, "top_k": 4},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "See", "images": ["AA=="]},
            {"role": "assistant", "content": "", "thinking": "Hm.",
             "tool_calls": [{"function": {"name": "look", "arguments": {"q": "a"}}}]},
            {"role": "tool", "tool_name": "look", "content": "42"},
        ],
    },
    "infill": {"model": "m", "prompt": "a", "suffix": "b", "options": {"num_predict": 3}},
    "raw": {"model": "m", "prompt": "a", "raw": True, "format": "json", "options": {"top_p": 0.5}},
    "lmstudio": {"model": "m", "ttl": 60, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0},
}  # fmt: skip


def head(text: str, most: int) -> str:
    """The beginning of a text."""
    return text[:most]


def _short(body: Mapping[str, Any]) -> object:
    return shortened(body["messages"], Exceeded(2000, 1000), head)


TURNS: Final[Mapping[str, Callable[[Any], object]]] = {
    "messages": chat_of_messages,
    "responses": chat_of_responses,
    "echoed": echoed,
    "ollama chat": lambda body: ollama_requests.chat(body, head),
    "ollama generate": lambda body: ollama_requests.generate(body, head),
    "ollama embed": lambda body: ollama_requests.embed(body, head),
    "ollama embeddings": lambda body: ollama_requests.embeddings(body, head),
    "ollama options": lambda body: from_options(body.get("options")),
    "lmstudio": lambda body: [turn(body, head) for turn in (lmstudio.chat, lmstudio.completion, lmstudio.embeddings)],
    "shortened": _short,
    "fit": fit,
    "fit opaque": partial(fit, opaque=True),
    "defaults": lambda body: sampling_defaults({name: body[name] for name in body if name in _SAMPLING}),
    "missing": lambda body: RequestSettings({
        "temperature": 1,
        "seed": 3,
        "max_tokens": 4,
        "repeat_penalty": 2,
        "top_k": 1,
    }).missing(body),
    "emulated": lambda body: [emulated(body, TemplateFacts(system=one)) for one in (True, False)],
    "emulated by another template": lambda body: emulated(body, TemplateFacts(text="<start_of_turn>")),
    "help": asked_help,
    "warnings": lambda body: with_warnings(body.get("messages")),
    "mended messages": lambda body: mended_messages(body.get("messages")),
    "mended input": mended_input,
    "mode": lambda body: asked_mode(body, None, "auto"),
    "tools": lambda body: [offers_tools(body), only_named(body)],
    "raw": lambda body: [can_go_raw(body), template_request(body), completion_request(body, "prompt")],
    "affinity": affinity_of,
    "media": lambda body: [list(places(body)), ends_with_a_medium(body), without_media(body)],
}


def _chunk(delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": dict(delta), "finish_reason": reason}]
    return {
        "id": "chatcmpl-1",
        "created": 5,
        "model": "m",
        "object": "chat.completion.chunk",
        "choices": choices,
        **more,
    }


def _called(index: int, **function: str) -> dict[str, Any]:
    more = {"id": f"c{index}", "type": "function"} if "name" in function else {}
    return {"tool_calls": [{"index": index, **more, "function": function}]}


_TIMINGS: Final = {
    "prompt_n": 3, "cache_n": 4, "prompt_ms": 1.5, "predicted_n": 2, "predicted_ms": 0.25, "predicted_per_second": 8.0,
}  # fmt: skip
_USAGE: Final = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
STREAM: Final[list[dict[str, Any]]] = [
    _chunk({}, prompt_progress={"total": 7, "cache": 4, "processed": 5}),
    _chunk({"role": "assistant", "content": None}),
    _chunk({"reasoning_content": "Hm."}),
    _chunk({"content": "I "}),
    _chunk({"content": "look."}),
    _chunk(_called(0, name="look", arguments="")),
    _chunk(_called(0, arguments='{"q": ')),
    _chunk(_called(0, arguments='"a"}')),
    _chunk(_called(1, name="look", arguments="{}")),
    _chunk({"content": "Done.", "reasoning_content": "So."}),
    _chunk({}, "tool_calls", timings=_TIMINGS, usage=_USAGE, __verbose={"stopping_word": "x"}),
]
WHOLE: Final[dict[str, Any]] = {
    **_chunk({}, usage=_USAGE, timings=_TIMINGS, __verbose={"stopping_word": "x"}),
    "choices": [{
        "index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [_CALL]},
        "logprobs": {"content": [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}]},
    }],
}  # fmt: skip
VOICES: Final[Mapping[str, Callable[[], Any]]] = {
    "chat": ChatVoice,
    "messages": MessagesVoice,
    "responses": lambda: ResponsesVoice({"temperature": 0.5, "tools": []}),
    "ollama chat": lambda: ChatLines(TELLING),
    "ollama generate": lambda: GenerateLines(TELLING),
    "stats": lambda: StatsVoice(TELLING),
}


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value within another one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*before, key)
        yield from _paths(one, (*before, key))


def damaged(value: Any, *words: object, odd: Sequence[object] = ODD) -> Any:
    """A copy in which one or two values are left out, doubled, or replaced by something else."""
    dice = Dice(*words)
    value = copy.deepcopy(value)
    for _ in range(1 + dice.below(2)):
        ways = list(_paths(value))
        *outer, last = dice.one_of(ways) if ways else (None,)
        place = value
        for key in outer:
            place = place[key]
        if last is None:
            return value
        kind = dice.one_of(("leave out", "replace", "replace", "double"))
        if kind == "leave out":
            del place[last]
        elif kind == "double" and isinstance(place, list):
            place.insert(last, copy.deepcopy(place[last]))
        else:
            place[last] = copy.deepcopy(dice.one_of(odd))
    return value


def plainly(value: Any) -> Any:
    """Anything as JSON has it: functions by their names, sets in order."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plainly(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plainly(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plainly(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, partial):
        return [plainly(value.func), plainly(value.args)]
    if callable(value):
        return getattr(value, "__name__", "")
    return value


def said(work: Callable[[], object]) -> Any:
    """What a piece of work returns or raises."""
    try:
        return plainly(work())
    except SupervisorError as error:
        return ["refused", error.code, error.param, error.message]
    except Exception as error:  # noqa: BLE001 - what is of another shape raises what Python raises
        return ["raised", type(error).__name__]


def _streamed(make: Callable[[], Any], chunks: list[dict[str, Any]]) -> object:
    voice = make()
    return [*(voice.chunk(one) for one in chunks), voice.end(), voice.error({"message": "Broke.", "code": "x"})]


def _whole(make: Callable[[], Any], answer: dict[str, Any]) -> object:
    return make().whole(answer)


def outcomes() -> dict[str, list[Any]]:
    """What becomes of every request by every turn, and of the answers by every voice."""
    found: dict[str, list[Any]] = {}
    for name, body in REQUESTS.items():
        bodies = [body, *(damaged(body, name, number) for number in range(OF_EACH))]
        for turn, work in TURNS.items():
            found[f"{turn} of {name}"] = [said(partial(work, copy.deepcopy(one))) for one in bodies]
    streams = [STREAM, *(damaged(STREAM, "stream", number) for number in range(OF_EACH))]
    wholes = [WHOLE, *(damaged(WHOLE, "whole", number) for number in range(OF_EACH))]
    for name, make in VOICES.items():
        found[f"{name} streamed"] = [said(partial(_streamed, make, one)) for one in streams]
        found[f"{name} whole"] = [said(partial(_whole, make, one)) for one in wholes]
    return found


if __name__ == "__main__":
    write(KEPT, outcomes())
