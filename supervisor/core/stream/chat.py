"""Fold `chat.completion.chunk` objects into one `chat.completion`.

The shape is that of llama-server's own answer: `content` is a string, empty where there is none; keys that
nothing came for (`reasoning_content`, `tool_calls`, `logprobs`) are absent.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.stream.fold import ChunkFold, extend_lists


def is_one(count: object) -> bool:
    """Return whether a request's `n`, of whatever type, asks for one answer."""
    return count is None or count == 1


def asks_for_one(request: Mapping[str, object]) -> bool:
    """Return whether a request asks for one answer to a prompt, by OpenAI's name and by the engine's."""
    return is_one(request.get("n")) and is_one(request.get("n_cmpl"))


class ChatFold(ChunkFold):
    """The collector of one chat answer's chunks."""

    def __init__(self) -> None:
        super().__init__("chat.completion", ChoiceFold)


class ChoiceFold:
    """The collector of one choice."""

    def __init__(self, index: int) -> None:
        self._fields: dict[str, object] = {"finish_reason": None, "index": index}
        self._role = "assistant"
        self._texts: dict[str, list[str]] = {"content": []}
        self._others: dict[str, object] = {}
        self._calls: dict[int, _ToolCall] = {}
        self._logprobs: dict[str, list[object]] = {}

    def feed(self, choice: Mapping[str, object]) -> None:
        for key, value in choice.items():
            if value is None or key == "index":
                continue
            if key == "delta" and isinstance(value, Mapping):
                self._delta(value)
            elif key == "logprobs" and isinstance(value, Mapping):
                extend_lists(self._logprobs, value)
            else:
                self._fields[key] = value

    def result(self) -> dict[str, object]:
        message: dict[str, object] = {"role": self._role}
        message.update((name, "".join(pieces)) for name, pieces in self._texts.items())
        message.update(self._others)
        if self._calls:
            message["tool_calls"] = [self._calls[index].result() for index in sorted(self._calls)]
        answer = {**self._fields, "message": message}
        if self._logprobs:
            answer["logprobs"] = dict(self._logprobs)
        return answer

    def debugging(self, told: Mapping[str, object]) -> dict[str, object]:
        """Return the record without the text as the model wrote it, since a stream shows what became of it."""
        return {key: value for key, value in told.items() if key not in {"content", "tokens"}}

    def _delta(self, delta: Mapping[str, object]) -> None:
        for key, value in delta.items():
            if key == "role":
                self._role = str(value)
            elif key == "tool_calls" and isinstance(value, list):
                self._tool_calls(value)
            elif isinstance(value, str):
                self._texts.setdefault(key, []).append(value)
            elif value is not None:
                self._others[key] = value

    def _tool_calls(self, parts: list[Mapping[str, object]]) -> None:
        for part in parts:
            index = part.get("index", 0)
            if not isinstance(index, int):
                raise TypeError("index of a tool call is not a number")
            self._calls.setdefault(index, _ToolCall()).feed(part)


class _ToolCall:
    """One call: its pieces of arguments are joined, everything else comes whole and a repeat changes nothing."""

    def __init__(self) -> None:
        self._fields: dict[str, object] = {"type": "function"}
        self._function: dict[str, object] = {"name": ""}
        self._arguments: list[str] = []

    def feed(self, part: Mapping[str, object]) -> None:
        self._fields.update((key, value) for key, value in part.items() if key not in {"index", "function"} and value)
        function = part.get("function") or {}
        if not isinstance(function, Mapping):
            raise TypeError("function of a tool call is not an object")
        for key, value in function.items():
            if key == "arguments":
                self._arguments.append(value or "")
            elif value:
                self._function[key] = value

    def result(self) -> dict[str, object]:
        return {**self._fields, "function": {**self._function, "arguments": "".join(self._arguments)}}
