"""One streamed chat answer from `/v1/chat/completions`, piece by piece and folded together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from supervisor.cli.client import Client, Json, remote_error
from supervisor.cli.render import Pieces, write
from supervisor.core.text.foreignjson import NotJson, parse
from supervisor.errors import DaemonError


@dataclass
class ToolCall:
    """A call the model made; `arguments` is JSON text, as the API gives it."""

    name: str = ""
    arguments: str = ""


@dataclass
class Answer:
    """The part of an answer that has arrived so far; `timings` are the engine's, and come with the end."""

    content: str = ""
    reasoning: str = ""
    tool_calls: dict[int, ToolCall] = field(default_factory=dict)
    finish_reason: str | None = None
    timings: Json | None = None

    def add(self, chunk: Json) -> None:
        """Take one chunk of the stream in."""
        self.timings = chunk.get("timings") or self.timings
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self.content += delta.get("content") or ""
            self.reasoning += delta.get("reasoning_content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            for part in delta.get("tool_calls") or ():
                call = self.tool_calls.setdefault(part.get("index") or 0, ToolCall())
                function = part.get("function") or {}
                call.name += function.get("name") or ""
                call.arguments += function.get("arguments") or ""

    def as_json(self) -> Json:
        """Return the answer in the form of `--json`."""
        return {
            "content": self.content,
            "reasoning_content": self.reasoning or None,
            "tool_calls": [vars(call) for call in self.tool_calls.values()],
            "finish_reason": self.finish_reason,
            "timings": self.timings,
        }


def stream(client: Client, request: Json, answer: Answer) -> Iterator[None]:
    """Ask, and grow `answer` with each chunk that arrives.

    Raises RemoteError for an error before or within the stream, DaemonError for a stream that breaks off.
    """
    with contextlib.closing(client.events("/v1/chat/completions", {**request, "stream": True})) as events:
        for event in events:
            if event == "[DONE]":
                return
            chunk = _chunk(event)
            if "error" in chunk:
                raise remote_error(chunk)
            answer.add(chunk)
            yield
    raise DaemonError("The answer broke off; see `supervisor logs`.")


def _chunk(event: str) -> Json:
    try:
        found = parse(event)
    except NotJson as error:
        raise DaemonError(f"A piece of the answer is not JSON: {error}. See `supervisor logs`.") from error
    if not isinstance(found, dict):
        raise DaemonError("A piece of the answer is not a JSON object; see `supervisor logs`.")
    return found


def show(client: Client, request: Json, answer: Answer, *, thoughts: bool = True) -> None:
    """Print an answer while it arrives: reasoning dim, unless `thoughts` is False, the text, the tool calls.

    Raises as `stream`.
    """
    reasoning = content = 0
    shown = Pieces()
    try:
        for _ in stream(client, request, answer):
            if thoughts and len(answer.reasoning) > reasoning:
                shown.write(answer.reasoning[reasoning:], quietly=True)
                reasoning = len(answer.reasoning)
            if len(answer.content) > content:
                shown.write(("\n\n" if reasoning and not content else "") + answer.content[content:])
                content = len(answer.content)
    finally:  # also of an answer that broke off or was cancelled
        if not (answer.content or (answer.reasoning if thoughts else "") or "\n").endswith("\n"):
            write("\n")
    for call in answer.tool_calls.values():
        write(f"tool call: {call.name}({call.arguments})\n")


def speed_text(timings: Json | None) -> str:
    """Return the engine's figures of an answer as a line for people; nothing where there are none."""
    found = timings or {}
    rate, read = found.get("predicted_per_second"), found.get("prompt_ms")
    parts = [f"{found['predicted_n']} tokens, {rate:.1f} t/s"] if rate and found.get("predicted_n") else []
    if read is not None and found.get("prompt_n") is not None:
        known = f" ({found['cache_n']} more were in the cache)" if found.get("cache_n") else ""
        parts.append(f"prompt: {found['prompt_n']} tokens{known} in {read / 1000:.2f} s")
    return " · ".join(parts)
