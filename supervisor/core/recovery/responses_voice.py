"""An answer in the form of `/v1/responses`: items of reasoning, text and calls, in the order in which they came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from supervisor.core.recovery.typed import Chunk, Delta, Head, Usage, numbered
from supervisor.core.recovery.voices import compact, message_of, named
from supervisor.core.stream.apis import RESPONSES
from supervisor.core.text.foreignjson import NotJson, parse

Item: TypeAlias = dict[str, object]

_ECHOED: Final = ("instructions", "max_output_tokens", "metadata", "previous_response_id", "reasoning", "temperature")
_CHOICES: Final = ("parallel_tool_calls", "tool_choice", "tools")
_MOST_ECHOED: Final = 1 << 18  # characters
_REASONING: Final = "reasoning"
_MESSAGE: Final = "message"
_TEXTS: Final = {"reasoning_content": _REASONING, "content": _MESSAGE}
_EVENTS: Final = {_REASONING: "response.reasoning_text", _MESSAGE: "response.output_text"}


def echoed(asked: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields that an answer repeats, as far as they are short: a stream repeats them three times."""
    left, kept = _MOST_ECHOED, dict[str, object]()
    for key in (*_CHOICES, *_ECHOED):
        if key in asked and (size := len(compact({key: asked[key]}))) <= left:
            left -= size
            kept[key] = asked[key]
    return kept


class ResponsesVoice:
    """One answer; see `Voice`. `asked`: what it repeats of the client's request, as `echoed` leaves it."""

    verbatim = False
    comments = True

    def __init__(self, asked: Mapping[str, object]) -> None:
        self._asked = asked
        self._head: Head | None = None  # of the first chunk
        self._now: int | None = None  # when the newest chunk was made
        self._said = 0
        self._items: list[Item] = []  # those that are complete
        self._open: str | int | None = None  # the present item: a kind of text, or the index of a call
        self._item: Item = {}
        self._text: list[str] = []
        self._reason: str | None = None
        self._usage: Usage | None = None

    def chunk(self, chunk: Chunk) -> bytes:
        """Return its texts and calls as events of items."""
        out = b""
        if self._head is None:
            self._head = chunk
            out += self._event("response.created", response=self._response("in_progress"))
            out += self._event("response.in_progress", response=self._response("in_progress"))
        self._now = chunk.get("created", self._now)
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            out += self._delta(choice.get("delta") or {})
            self._reason = choice.get("finish_reason") or self._reason
        return out

    def end(self) -> bytes:
        """Return the end of the last item, and the whole response."""
        status = self._status()
        closed = self._closed(status)
        response = self._response(status)
        return closed + self._event(f"response.{response['status']}", response=response)

    def error(self, error: Mapping[str, object]) -> bytes:
        """Return the event `error`."""
        return RESPONSES.stream_error(error)

    def whole(self, answer: Chunk) -> Mapping[str, object]:
        """Return the response with all its items."""
        message, reason = message_of(answer)
        delta: Delta = {**message, "tool_calls": numbered(message)}
        self.chunk({**answer, "choices": [{"delta": delta, "finish_reason": reason}]})
        status = self._status()
        self._closed(status)
        return self._response(status)

    def _delta(self, delta: Delta) -> bytes:
        out = b""
        for key, kind in _TEXTS.items():
            text = delta.get(key)
            if isinstance(text, str) and text:
                out += self._at(kind, self._reasoning() if kind == _REASONING else self._message())
                self._text.append(text)
                more: Item = {"logprobs": []} if kind == _MESSAGE else {}
                out += self._about(f"{_EVENTS[kind]}.delta", content_index=0, delta=text, **more)
        for part in delta.get("tool_calls") or ():
            function = part.get("function") or {}
            out += self._at(part.get("index", 0), self._call(part.get("id"), function.get("name")))
            piece = function.get("arguments")
            if piece:
                self._text.append(piece)
                out += self._about("response.function_call_arguments.delta", delta=piece)
        return out

    # -- items ---------------------------------------------------------------------------------------------------------

    def _reasoning(self) -> Item:
        return {**self._named("rs", _REASONING), "summary": [], "content": [], "encrypted_content": ""}

    def _message(self) -> Item:
        return {**self._named("msg", _MESSAGE), "role": "assistant", "content": []}

    def _call(self, identity: str | None, name: str | None) -> Item:
        return {**self._named("fc", "function_call"), "call_id": identity, "name": name, "arguments": ""}

    def _named(self, prefix: str, kind: str) -> Item:
        number = len(self._items) + (self._open is not None)
        return {"id": f"{prefix}_{self._suffix()}_{number}", "type": kind, "status": "in_progress"}

    def _at(self, place: str | int, item: Item) -> bytes:
        """Go to this item: end the one before, begin this one."""
        if self._open == place:
            return b""
        out = self._closed("completed")
        self._open, self._item, self._text = place, item, []
        out += self._event("response.output_item.added", output_index=len(self._items), item=item)
        if place == _MESSAGE:
            out += self._about("response.content_part.added", content_index=0, part=_part(""))
        return out

    def _closed(self, status: str) -> bytes:
        """End the present item, and return its events."""
        if self._open is None:
            return b""
        text, kind, out = "".join(self._text), self._open, b""
        done: Item = {**self._item, "status": status}
        if isinstance(kind, int):
            done["arguments"] = text
            out += self._about("response.function_call_arguments.done", name=done["name"], arguments=text)
        elif kind == _MESSAGE:
            done["content"] = [_part(text)]
            out += self._about("response.output_text.done", content_index=0, text=text, logprobs=[])
            out += self._about("response.content_part.done", content_index=0, part=_part(text))
        else:
            done["content"] = [{"type": "reasoning_text", "text": text}]
            out += self._about("response.reasoning_text.done", content_index=0, text=text)
        out += self._event("response.output_item.done", output_index=len(self._items), item=done)
        self._items.append(done)
        self._open = None
        return out

    # -- events --------------------------------------------------------------------------------------------------------

    def _about(self, kind: str, **more: object) -> bytes:
        """Return an event of the present item."""
        return self._event(kind, item_id=self._item["id"], output_index=len(self._items), **more)

    def _event(self, kind: str, **more: object) -> bytes:
        self._said += 1
        return named({"type": kind, "sequence_number": self._said - 1, **more})

    def _suffix(self) -> str:
        return str((self._head or {}).get("id", "")).removeprefix("chatcmpl-")

    def _status(self) -> str:
        """Return the engine's own word for every end, `completed`.

        A call that was cut gets another, as nobody must carry it out.
        """
        cut = self._reason == "length" and isinstance(self._open, int) and not _is_json("".join(self._text))
        return "incomplete" if cut else "completed"

    def _response(self, status: str) -> Item:
        head, asked = self._head or {}, self._asked
        why = {"reason": "max_output_tokens"} if status == "incomplete" else None
        parallel = asked.get("parallel_tool_calls")
        return {
            "id": "resp_" + self._suffix(),
            "object": "response",
            "created_at": head.get("created"),
            "completed_at": self._now if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": why,
            "model": head.get("model"),
            "output": list(self._items),
            "parallel_tool_calls": True if parallel is None else parallel,
            "tool_choice": asked.get("tool_choice") or "auto",
            "tools": asked.get("tools") or [],
            **{key: asked.get(key) for key in _ECHOED},
            "usage": None if status == "in_progress" else _usage(self._usage or {}),
        }


def _part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except NotJson:
        return False
    return True


def _usage(usage: Usage) -> Mapping[str, object]:
    read, written = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
