"""Chunks of a chat as events of the other APIs: blocks and items open and close in order, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.recovery.messages_voice import MessagesVoice
from supervisor.core.recovery.responses_voice import ResponsesVoice, echoed
from supervisor.core.recovery.typed import Chunk
from supervisor.core.recovery.voices import Voice
from supervisor.core.stream.chat import ChatFold
from supervisor.core.stream.sse import SseDecoder

HEAD: Chunk = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 2}}
Step = tuple[str, str]

STEPS = st.lists(
    st.tuples(st.sampled_from(["content", "reasoning_content", "call", "piece"]), st.text(min_size=1, max_size=5)),
    max_size=12,
)
"""What a model does, one after the other; a `piece` belongs to the call before it."""


def deltas(steps: list[Step]) -> list[Any]:
    out: list[Any] = [{"role": "assistant", "content": None}]
    calls = 0
    for kind, text in steps:
        if kind == "call":
            function = {"name": "f", "arguments": ""}
            out.append({"tool_calls": [{"index": calls, "id": f"id{calls}", "type": "function", "function": function}]})
            calls += 1
        elif kind != "piece":
            out.append({kind: text})
        elif calls:
            out.append({"tool_calls": [{"index": calls - 1, "function": {"arguments": text}}]})
    return out


def chunks(steps: list[Step], reason: str) -> list[Any]:
    said = [{**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas(steps)]
    said.append({**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return [*said, {**HEAD, "choices": [], "usage": USAGE}]


def spoken(voice: Voice, steps: list[Step], reason: str) -> list[dict[str, Any]]:
    stream = b"".join(map(voice.chunk, chunks(steps, reason))) + voice.end()
    events = SseDecoder().feed(stream)
    found = [json.loads(event.data) for event in events]
    assert [event.event for event in events] == [event["type"] for event in found]
    return found


def parts(steps: list[Step]) -> list[tuple[str, str]]:
    """What it amounts to: neighbours of one kind are one, and a piece goes to the newest call wherever that is."""
    out: list[tuple[str, str]] = []
    for delta in deltas(steps)[1:]:
        for call in delta.get("tool_calls", []):
            if "id" in call:
                out.append((call["id"], ""))
            elif out[-1][0] == f"id{call['index']}":
                out[-1] = (out[-1][0], out[-1][1] + call["function"]["arguments"])
        for key in ("content", "reasoning_content"):
            if key in delta:
                same = out and out[-1][0] == key
                out = [*out[:-1], (key, out[-1][1] + delta[key])] if same else [*out, (key, delta[key])]
    return out


def is_in_order(steps: list[Step]) -> bool:
    """Whether every piece follows its call, as in what recovery gives out."""
    kinds = [kind for kind, _ in steps]
    return all(kind != "piece" or (at and kinds[at - 1] in {"call", "piece"}) for at, kind in enumerate(kinds))


ORDERLY = STEPS.filter(is_in_order)


@given(ORDERLY)
def test_blocks_of_messages(steps: list[Step]) -> None:
    events = spoken(MessagesVoice(), steps, "stop")
    assert events[0]["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    blocks: list[tuple[str, str]] = []
    open_block = None
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
            assert open_block == len(blocks)
            block = event["content_block"]
            kinds = {"text": "content", "thinking": "reasoning_content"}
            blocks.append((block["id"] if block["type"] == "tool_use" else kinds[block["type"]], ""))
        else:
            assert event["index"] == open_block
            if event["type"] == "content_block_stop":
                open_block = None
                continue
            delta = event["delta"]
            text = delta.get("text", "") + delta.get("thinking", "") + delta.get("partial_json", "")
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + text)
    assert open_block is None
    assert blocks == parts(steps)
    usage = events[-2]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (7, 2, 4)


@given(ORDERLY)
def test_items_of_responses(steps: list[Step]) -> None:
    events = spoken(ResponsesVoice({}), steps, "stop")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == [event["output_index"] for event in done]
    assert [event["output_index"] for event in done] == list(range(len(done)))
    assert [event["item"]["id"] for event in added] == [event["item"]["id"] for event in done]
    response = events[-1]["response"]
    assert response["output"] == [event["item"] for event in done]
    assert [item_part(item) for item in response["output"]] == parts(steps)
    assert len({item["id"] for item in response["output"]}) == len(response["output"])
    heard: dict[str, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            heard[event["item_id"]] = heard.get(event["item_id"], "") + event["delta"]
    assert {item["id"]: item_part(item)[1] for item in response["output"] if item_part(item)[1]} == heard
    shown = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    shown += [event["part"] for event in events if event["type"].startswith("response.content_part.")]
    assert {part["type"] for part in shown} <= {"output_text"}


def item_part(item: Mapping[str, Any]) -> tuple[str, str]:
    if item["type"] == "function_call":
        return item["call_id"], item["arguments"]
    return ("content" if item["type"] == "message" else "reasoning_content"), item["content"][0]["text"]


@pytest.mark.parametrize(
    ("reason", "stop", "status"),
    [
        ("stop", "end_turn", "completed"),
        ("tool_calls", "tool_use", "completed"),
        ("length", "max_tokens", "incomplete"),
    ],
)
def test_whole_answers_are_the_same(reason: str, stop: str, status: str) -> None:
    steps = [("reasoning_content", "Hm."), ("content", "Hi"), ("call", "x"), ("piece", '{"a": 1}'), ("call", "x")]
    fold = ChatFold()
    for chunk in chunks(steps, reason):
        fold.feed(chunk)
    answer: Any = fold.response()
    message: Any = MessagesVoice().whole(answer)
    assert message["stop_reason"] == stop == spoken(MessagesVoice(), steps, reason)[-2]["delta"]["stop_reason"]
    kinds = [block["type"] for block in message["content"]]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["input"] for block in message["content"][2:]] == [{"a": 1}, {}]
    assert message["id"] == "msg_7"
    asked = {"tools": [{"type": "function", "name": "f"}], "parallel_tool_calls": False}
    response = ResponsesVoice(asked).whole(answer)
    last = spoken(ResponsesVoice(asked), steps, reason)[-1]
    assert last["type"] == f"response.{status}"
    assert response == last["response"]
    assert (response["status"], response["tools"], response["parallel_tool_calls"]) == (status, asked["tools"], False)


def test_halves_of_characters_do_not_end_a_stream() -> None:
    for voice in (MessagesVoice(), ResponsesVoice({})):
        events = spoken(voice, [("content", "a\ud83d")], "stop")
        assert "a?" in json.dumps(events)


def test_an_end_for_want_of_tokens_is_completed_but_for_a_call_that_is_cut() -> None:
    """As the engine says it; nobody must carry out half a call."""
    call: list[Step] = [("call", "x"), ("piece", '{"a": 1')]
    for steps, status in (
        ([("content", "Hi")], "completed"),
        (call, "incomplete"),
        ([*call, ("piece", "}")], "completed"),
        ([*call, ("content", "Hi")], "completed"),
    ):
        last = spoken(ResponsesVoice({}), steps, "length")[-1]["response"]
        assert (last["status"], last["output"][-1]["status"]) == (status, status)
        assert last["completed_at"] == (1 if status == "completed" else None)
        assert (last["incomplete_details"] is None) == (status == "completed")


def test_a_response_is_completed_when_its_last_chunk_was_made() -> None:
    voice = ResponsesVoice({})
    for created, delta in enumerate(deltas([("content", "Hi")])):
        voice.chunk({**HEAD, "created": 7 + created, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    response = SseDecoder().feed(voice.end())[-1].data
    found = json.loads(response)["response"]
    assert (found["created_at"], found["completed_at"]) == (7, 8)


@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": 5}])
def test_tokens_of_a_response(details: object) -> None:
    voice = ResponsesVoice({})
    for created, delta in enumerate(deltas([("content", "Hi")])):
        voice.chunk({**HEAD, "created": created, "choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]})
    usage: Any = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": details}
    voice.chunk({**HEAD, "choices": [], "usage": usage})
    found = json.loads(SseDecoder().feed(voice.end())[-1].data)["response"]["usage"]
    assert (found["input_tokens"], found["output_tokens"], found["total_tokens"]) == (7, 2, 9)
    assert found["input_tokens_details"] == {"cached_tokens": 5 if details else 0}


def test_a_message_begins_once_it_is_known_how_long_its_prompt_is() -> None:
    voice = MessagesVoice()
    role: Any = {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
    progress: Any = {"total": 9, "cache": 2, "processed": 2, "time_ms": 0}
    assert voice.chunk({**HEAD, "choices": [role]}) == b""
    (start,) = SseDecoder().feed(voice.chunk({**HEAD, "choices": [role], "prompt_progress": progress}))
    usage = json.loads(start.data)["message"]["usage"]
    assert usage == {"cache_read_input_tokens": 2, "input_tokens": 7, "output_tokens": 0}
    assert voice.chunk({**HEAD, "choices": [role], "prompt_progress": progress}) == b""


def test_a_message_without_a_word_has_a_beginning_and_an_end() -> None:
    kinds = [event["type"] for event in spoken(MessagesVoice(), [], "stop")]
    assert kinds == ["message_start", "message_delta", "message_stop"]


def test_an_answer_repeats_of_its_request_what_is_short() -> None:
    tools = [{"type": "function", "name": "f"}]
    asked = {"input": "Hi", "temperature": 1, "tools": tools, "metadata": {"k": "x" * (1 << 20)}}
    assert echoed(asked) == {"temperature": 1, "tools": tools}
    assert len(ResponsesVoice(echoed(asked)).chunk(HEAD)) < 10_000


def test_an_item_of_a_response_is_in_progress_until_it_is_done() -> None:
    events = spoken(ResponsesVoice({}), [("reasoning_content", "Hm."), ("content", "Hi")], "stop")
    added = [event["item"]["status"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"]["status"] for event in events if event["type"] == "response.output_item.done"]
    assert added == ["in_progress"] * len(done)
    assert done == ["completed"] * len(added) != []
