"""Fold the chunks of a streamed text completion into one `text_completion`.

A choice of llama-server's own answer always has `logprobs`, null where none were asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.stream.fold import ChunkFold, extend_lists


class CompletionFold(ChunkFold):
    """The collector of one text completion's chunks, over all its prompts and choices."""

    def __init__(self) -> None:
        super().__init__("text_completion", _TextChoice)


class _TextChoice:
    def __init__(self, index: int) -> None:
        self._fields: dict[str, object] = {"index": index, "logprobs": None, "finish_reason": None}
        self._text: list[str] = []
        self._logprobs: dict[str, list[object]] = {}

    def feed(self, choice: Mapping[str, object]) -> None:
        for key, value in choice.items():
            if value is None or key == "index":
                continue
            if key == "text":
                self._text.append(str(value))
            elif key == "logprobs" and isinstance(value, Mapping):
                extend_lists(self._logprobs, value)
            else:
                self._fields[key] = value

    def result(self) -> dict[str, object]:
        answer = {**self._fields, "text": "".join(self._text)}
        if self._logprobs:
            answer["logprobs"] = dict(self._logprobs)
        return answer

    def debugging(self, told: Mapping[str, object]) -> dict[str, object]:
        """Return the record with the text and its probabilities, which the events before the last one gave."""
        shown = {"completion_probabilities": self._logprobs["content"]} if "content" in self._logprobs else {}
        return {**told, "content": "".join(self._text), **shown}
