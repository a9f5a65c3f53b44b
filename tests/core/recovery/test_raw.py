"""The raw route: what may go it, what the engine is asked, and its events as chunks of a chat."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.recovery.raw import RawChunks, can_go_raw, completion_request, opens_thought, template_request
from supervisor.core.recovery.typed import RawEvent
from supervisor.core.toolcalls import REGISTRY

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"function": {"name": "ping"}}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "max_tokens": 7,
}


@pytest.mark.parametrize(
    "more",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "ping"}}},
        {"response_format": {"type": "json_object"}},
        {"grammar": "root ::= x"},
        {"json_schema": {"type": "object"}},
        {"logprobs": True},
        {"n_probs": 3},
        {"continue_final_message": True},
        {"n": 2},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    ],
)
def test_what_needs_the_engine_s_parser_does_not_go_raw(more: dict[str, Any]) -> None:
    assert can_go_raw(BODY)
    assert can_go_raw({**BODY, "n": 1, "tool_choice": "auto"})
    assert not can_go_raw({**BODY, **more})


def test_the_prompt_is_rendered_and_continued() -> None:
    assert template_request(BODY) == {key: BODY[key] for key in BODY if key not in {"stream", "stream_options"}}
    asked: dict[str, Any] = completion_request(BODY, "<|im_start|>Hi")
    shown = asked.pop("preserved_tokens")
    assert asked == {
        **{"temperature": 0.5, "n_predict": 7, "prompt": "<|im_start|>Hi", "stream": True, "return_progress": True},
    }
    assert {"<tool_call>", "</tool_call>", "<think>", "[ARGS]"} <= set(shown)
    assert not set(shown) & {*REGISTRY.ends, "<|channel|>"}
    channelled: Any = completion_request(BODY, "<|channel|>")
    assert "<|channel|>" in channelled["preserved_tokens"]
    assert completion_request({"max_completion_tokens": 3}, "")["n_predict"] == 3
    assert "n_predict" not in completion_request({}, "")


def test_a_prompt_may_open_the_thoughts() -> None:
    assert opens_thought("…<think>\n")
    assert not opens_thought("…<think></think>")


def test_events_become_chunks() -> None:
    chunks = RawChunks({"id": "x", "created": 1, "model": "m"}, with_usage=True, with_role=True)
    head = {"id": "x", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    assert [one["choices"][0]["delta"] for one in chunks.feed({"content": "Hi"})] == [
        {"role": "assistant", "content": None},
        {"content": "Hi"},
    ]
    assert [chunks.done] == [False]
    end: RawEvent = {
        "stop": True,
        "stop_type": "limit",
        "tokens_evaluated": 5,
        "tokens_predicted": 2,
        "timings": {"cache_n": 3},
    }
    last, usage = chunks.feed(end)
    assert chunks.done
    assert last["choices"][0]["finish_reason"] == "length"
    counts = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert usage == {**head, "choices": [], "usage": counts, "timings": {"cache_n": 3}}


def test_no_usage_that_nobody_asked_for() -> None:
    chunks = RawChunks({}, with_usage=False, with_role=False, with_stop_word=True)
    (last,) = chunks.feed({"stop": True, "stop_type": "word", "stopping_word": "X", "timings": {"cache_n": 3}})
    assert last["choices"][0]["finish_reason"] == "stop"
    assert (last["__verbose"], last["timings"]) == ({"stopping_word": "X"}, {"cache_n": 3})
    assert "usage" not in last
