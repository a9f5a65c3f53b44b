"""Answers of the daemon, as LocalAI's replies."""

from __future__ import annotations

import json
from typing import Any

from supervisor.core.localai.answering import Stream, ranked, vectors, whole
from supervisor.core.localai.figures import BUSY, ERROR, READY, UNINITIALIZED, Figures, told
from supervisor.core.localai.messages import (
    ChatDelta,
    DocumentResult,
    EmbeddingResult,
    MetricsResponse,
    Reply,
    RerankResult,
    ToolCallDelta,
    Usage,
)

USAGE = {"usage": {"completion_tokens": 5, "prompt_tokens": 7}, "timings": {"prompt_ms": 1.5, "predicted_ms": 2.5}}
TOTALS = {"tokens": 5, "prompt_tokens": 7, "timing_prompt_processing": 1.5, "timing_token_generation": 2.5}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def test_a_whole_chat_has_text_and_deltas() -> None:
    message = {"content": "Hi ✓", "reasoning_content": "Hm.", "tool_calls": [CALL, {**CALL, "id": "d"}]}
    probabilities = {"content": [{"token": "Hi", "logprob": -0.5}]}
    reply = whole({"choices": [{"message": message, "logprobs": probabilities}], **USAGE}, is_chat=True)
    calls = (ToolCallDelta(0, "c", "f", '{"a": 1}'), ToolCallDelta(1, "d", "f", '{"a": 1}'))
    assert reply == Reply(
        message="Hi ✓".encode(),
        logprobs=reply.logprobs,
        chat_deltas=(ChatDelta("Hi ✓", "Hm.", calls),),
        **TOTALS,  # type: ignore[arg-type] # counts and times by name
    )
    assert json.loads(reply.logprobs) == probabilities


def test_a_whole_completion_has_text_alone() -> None:
    assert whole({"choices": [{"text": "Hi"}]}, is_chat=False) == Reply(message=b"Hi")
    assert whole({"choices": [{"message": {"content": None}}]}, is_chat=True) == Reply()


def test_half_of_a_pair_of_surrogates_is_no_reason_to_fail() -> None:
    assert whole({"choices": [{"text": "\ud800"}]}, is_chat=False).message == b"?"


def test_pieces_of_a_chat_and_then_the_totals() -> None:
    stream = Stream(is_chat=True)
    pieces: list[dict[str, Any]] = [
        {"choices": [{"delta": {"role": "assistant", "content": None}}]},
        {"choices": [{"delta": {"reasoning_content": "Hm."}}]},
        {"choices": [{"delta": {"content": "Hi"}, "logprobs": {"content": [{"token": "Hi"}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop", "logprobs": {"content": [{"token": ""}]}}]},
        {"choices": [], **USAGE},
    ]
    assert [stream.piece(chunk) for chunk in pieces] == [
        None,
        Reply(chat_deltas=(ChatDelta(reasoning_content="Hm."),)),
        Reply(message=b"Hi", chat_deltas=(ChatDelta("Hi"),)),
        Reply(chat_deltas=(ChatDelta(tool_calls=(ToolCallDelta(1, arguments="{"),)),)),
        None,
        None,
    ]
    end = stream.end()
    assert end == Reply(logprobs=end.logprobs, **TOTALS)  # type: ignore[arg-type] # counts and times by name
    assert json.loads(end.logprobs) == {"content": [{"token": "Hi"}, {"token": ""}]}


def test_pieces_of_a_completion_have_no_deltas() -> None:
    stream = Stream(is_chat=False)
    assert stream.piece({"choices": [{"text": "Hi"}]}) == Reply(message=b"Hi")
    assert stream.end() == Reply()


def test_vectors_are_flat_and_say_their_form() -> None:
    answer = {"data": [{"embedding": [1.0, 2.0]}, {"embedding": [3.0, 4.0]}], "usage": {"prompt_tokens": 9}}
    assert vectors(answer) == EmbeddingResult((1.0, 2.0, 3.0, 4.0), tokens=2, dim=2, prompt_tokens=9, layout=1)
    assert vectors({}) == EmbeddingResult(layout=1)


def test_ranked_documents_have_their_texts() -> None:
    answer = {
        "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}],
        "usage": {"total_tokens": 8, "prompt_tokens": 8},
    }
    expected = (DocumentResult(1, "b", 0.9), DocumentResult(0, "a", 0.1))
    assert ranked(answer, ("a", "b")) == RerankResult(Usage(8, 8), expected)


def test_state_and_memory_are_those_of_all_models() -> None:
    ready: dict[str, Any] = {"state": "ready", "leases": 0, "waiting": 0, "footprint": {"CPU": 5, "CUDA0": 1}}
    status = told([ready, {**ready, "footprint": {"CPU": 2}}])
    assert (status.state, status.memory.total, status.memory.breakdown) == (READY, 8, {"CPU": 7, "CUDA0": 1})
    states: dict[int, list[list[dict[str, Any]]]] = {
        UNINITIALIZED: [[], [{"state": "unloaded", "footprint": None}]],
        BUSY: [[ready, {**ready, "leases": 1}], [{**ready, "waiting": 1}], [{"state": "loading"}]],
        ERROR: [[ready, {"state": "failed"}], [{"state": "backoff"}]],
    }
    for state, cases in states.items():
        assert [told(case).state for case in cases] == [state] * len(cases)


def test_figures_add_up_and_keep_the_last_rate() -> None:
    figures = Figures().and_then(Reply(tokens=10, prompt_tokens=3, timing_token_generation=500.0))
    assert figures.and_then(Reply(prompt_tokens=4)).as_message() == MetricsResponse(20.0, 10, 7)
    assert Figures(2**40, 2**40).as_message() == MetricsResponse(0.0, 2**31 - 1, 2**31 - 1)
