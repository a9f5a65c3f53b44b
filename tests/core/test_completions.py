from __future__ import annotations

from typing import Any

from supervisor.core.stream.completions import CompletionFold


def chunk(text: str, index: int = 0, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "text_completion", "choices": [choice], **fields}


def fold(*chunks: dict[str, Any]) -> dict[str, Any]:
    collector = CompletionFold()
    for each in chunks:
        collector.feed(each)
    return collector.response()


def test_texts_by_index() -> None:
    answer = fold(
        chunk("", prompt_progress={"total": 1}),
        chunk("b", 1),
        chunk("a"),
        chunk("B", 1),
        chunk("", 1, "length", usage={"total_tokens": 2}, timings={"n": 2}),
        chunk("", 0, "stop", usage={"total_tokens": 1}, timings={"n": 1}),
    )
    assert answer == {
        "id": "chatcmpl-1",
        "object": "text_completion",
        "choices": [
            {"text": "a", "index": 0, "logprobs": None, "finish_reason": "stop"},
            {"text": "bB", "index": 1, "logprobs": None, "finish_reason": "length"},
        ],
        "usage": {"total_tokens": 1},
        "timings": {"n": 1},
    }


def test_logprobs_of_both_shapes_are_joined() -> None:
    def part(**lists: Any) -> dict[str, Any]:
        return {"choices": [{"text": "x", "index": 0, "logprobs": lists, "finish_reason": None}]}

    assert fold(part(content=[{"token": "x"}]), part(content=[{"token": "y"}]))["choices"][0]["logprobs"] == {
        "content": [{"token": "x"}, {"token": "y"}]
    }
    assert fold(part(tokens=["x"], text_offset=[0]), part(tokens=["y"], text_offset=[1]))["choices"][0]["logprobs"] == {
        "tokens": ["x", "y"],
        "text_offset": [0, 1],
    }


def test_extra_fields_of_a_choice_are_kept() -> None:
    answer = fold({"choices": [{"text": "x", "index": 0, "stop_reason": "word"}]})
    assert answer["choices"][0]["stop_reason"] == "word"
