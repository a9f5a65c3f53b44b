"""Answers in the form of `/api/chat` and `/api/generate`: a line of JSON for each piece, the last with the counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from supervisor.core.doors.turned import Telling
from supervisor.core.recovery.typed import CallPart, Chunk, Delta
from supervisor.core.recovery.voices import message_of
from supervisor.core.stream.apis import OLLAMA, line
from supervisor.core.text.foreignjson import NotJson, parse

Json: TypeAlias = dict[str, object]

_NS: Final = 1_000_000_000
_MS: Final = 1_000_000  # nanoseconds
_PROBABILITY: Final = ("token", "logprob", "bytes", "top_logprobs")


class Lines:
    """One answer of a chat, in lines; see `Voice`. What a piece says is put into a line by `_said`."""

    verbatim = False
    comments = False

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._calls = Calls()
        self._reason: str | None = None
        self._told: Mapping[str, Any] = {}  # the engine's measurements

    def chunk(self, chunk: Chunk) -> bytes:
        """Return a line for what a chunk says; none where it says nothing."""
        out = b""
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            out += self._text(delta, choice.get("logprobs"))
            for part in delta.get("tool_calls") or ():
                if self._calls.begins_another(part):
                    out += self._called()
                self._calls.take(part)
            self._reason = choice.get("finish_reason") or self._reason
        self._told = chunk.get("timings") or self._told
        return out

    def end(self) -> bytes:
        """Return the last calls, and the line with `done`."""
        return self._called() + line(self._ended(self._said("", None)))

    def error(self, error: Mapping[str, object]) -> bytes:
        """Return a line with the error."""
        return OLLAMA.stream_error(error)

    def whole(self, answer: Chunk) -> Mapping[str, object]:
        """Return one object for the whole answer."""
        message, self._reason = message_of(answer)
        self._told = answer.get("timings") or {}
        calls = Calls()
        for number, part in enumerate(message.get("tool_calls") or ()):
            calls.take({**part, "index": number})
        said = self._said(message.get("content") or "", message.get("reasoning_content"), calls.all())
        choices: Any = answer.get("choices")
        return self._ended({**said, **probabilities(choices[0].get("logprobs") if choices else None)})

    def _said(self, text: str, thought: str | None, calls: list[Json] | None = None) -> Json:
        raise NotImplementedError

    def _text(self, delta: Delta, logprobs: object) -> bytes:
        text, thought, told = delta.get("content"), delta.get("reasoning_content"), probabilities(logprobs)
        return self._line({**self._said(text or "", thought), **told}) if text or thought or told else b""

    def _called(self) -> bytes:
        calls = self._calls.all()
        self._calls = Calls(len(calls) + self._calls.before)
        return self._line(self._said("", None, calls)) if calls else b""

    def _line(self, said: Json) -> bytes:
        return line({**head(self._telling), **said, "done": False})

    def _ended(self, said: Json) -> Json:
        return {**head(self._telling), **said, **end_of(self._telling, self._reason, self._told)}


class ChatLines(Lines):
    """An answer of `/api/chat`."""

    def _said(self, text: str, thought: str | None, calls: list[Json] | None = None) -> Json:
        message: Json = {"role": "assistant", "content": text}
        if thought:
            message["thinking"] = thought
        if calls:
            message["tool_calls"] = calls
        return {"message": message}


class GenerateLines(Lines):
    """An answer of `/api/generate`."""

    def _said(self, text: str, thought: str | None, calls: list[Json] | None = None) -> Json:
        return {"response": text, **({"thinking": thought} if thought else {})}


class Calls:
    """The calls of an answer, which clients get whole. before: how many came earlier."""

    def __init__(self, before: int = 0) -> None:
        self.before = before
        self._calls: dict[int, tuple[Json, list[str]]] = {}

    def begins_another(self, part: CallPart) -> bool:
        """Return whether a piece belongs to a call that is not here yet, while others are."""
        return bool(self._calls) and part.get("index", 0) not in self._calls

    def take(self, part: CallPart) -> None:
        """Take a piece."""
        call, arguments = self._calls.setdefault(part.get("index", 0), ({}, []))
        function = part.get("function") or {}
        call |= {key: value for key, value in (("id", part.get("id")), ("name", function.get("name"))) if value}
        arguments.append(function.get("arguments") or "")

    def all(self) -> list[Json]:
        """Return them in Ollama's form."""
        return [
            {
                **({"id": call["id"]} if "id" in call else {}),
                "function": {
                    "index": self.before + number,
                    "name": call.get("name", ""),
                    "arguments": _value("".join(arguments)),
                },
            }
            for number, (call, arguments) in enumerate(self._calls.values())
        ]


class RawLines:
    """An answer to `/api/generate` whose prompt goes to the engine as it is; see `RawVoice`."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def event(self, event: Mapping[str, Any]) -> bytes:
        """Return the line for an event of `/completion` or `/infill`; none where it says nothing."""
        text = str(event.get("content") or "")
        out = b""
        if text:
            told = probabilities({"content": event.get("completion_probabilities")})
            out = line({**head(self._telling), "response": text, **told, "done": False})
        return out + line(self._ended("", event)) if event.get("stop") else out

    def error(self, error: Mapping[str, object]) -> bytes:
        """Return a line with the error."""
        return OLLAMA.stream_error(error)

    def whole(self, answer: Mapping[str, Any]) -> Mapping[str, object]:
        """Return one object for the whole answer."""
        told = probabilities({"content": answer.get("completion_probabilities")})
        return {**self._ended(str(answer.get("content") or ""), answer), **told}

    def _ended(self, text: str, event: Mapping[str, Any]) -> Json:
        reason = "length" if event.get("stop_type") == "limit" else "stop"
        return {
            **head(self._telling),
            "response": text,
            **end_of(self._telling, reason, event.get("timings") or {}),
        }


def head(telling: Telling) -> Json:
    """Return the fields with which every line begins."""
    return {"model": telling.model, "created_at": moment(telling.now())}


def moment(seconds: float) -> str:
    """Return a moment since 1970 as RFC 3339 has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def ended(lines: Callable[[Telling], Lines], reason: str, telling: Telling) -> Json:
    """Return the answer to a request that has nothing to be answered; reason: `load` or `unload`."""
    told = lines(telling)._said("", None)
    return {**head(telling), **told, "done": True, "done_reason": reason}


def end_of(telling: Telling, reason: str | None, timings: Mapping[str, Any]) -> Json:
    """Return the fields of the last line: why it ends, tokens, and times in nanoseconds. What is nothing is left out.

    timings: the engine's, in milliseconds.
    """
    total, before = telling.elapsed()
    counts = {
        "total_duration": int(total * _NS),
        "load_duration": int(before * _NS),
        "prompt_eval_count": _whole(timings, "prompt_n") + _whole(timings, "cache_n"),
        "prompt_eval_duration": int(_number(timings, "prompt_ms") * _MS),
        "eval_count": _whole(timings, "predicted_n"),
        "eval_duration": int(_number(timings, "predicted_ms") * _MS),
    }
    done: Json = {"done": True, "done_reason": "length" if reason == "length" else "stop"}
    return {**done, **{name: value for name, value in counts.items() if value}}


def probabilities(logprobs: object) -> Json:
    """Return the field for OpenAI's or the engine's probabilities of tokens; none where there are none."""
    told = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(told, list) or not told:
        return {}
    return {"logprobs": [_probability(one) for one in told if isinstance(one, Mapping)]}


def _probability(one: Mapping[str, Any]) -> Json:
    said = {key: one[key] for key in _PROBABILITY if one.get(key) is not None}
    top = said.get("top_logprobs")
    if isinstance(top, list):
        said["top_logprobs"] = [_probability(other) for other in top if isinstance(other, Mapping)]
    return said


def _value(arguments: str) -> object:
    """Return the arguments of a call as an object; of a call that was cut, or has none, an empty one."""
    try:
        value: object = parse(arguments or "{}")
    except NotJson:
        return {}
    return value if isinstance(value, dict) else {}


def _number(timings: Mapping[str, Any], name: str) -> float:
    value = timings.get(name)
    return value if isinstance(value, int | float) and value > 0 else 0.0


def _whole(timings: Mapping[str, Any], name: str) -> int:
    return int(_number(timings, name))
