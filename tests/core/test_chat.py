from __future__ import annotations

from typing import Any

from supervisor.core.stream.chat import ChatFold


def fold(*chunks: dict[str, Any]) -> dict[str, Any]:
    collector = ChatFold()
    for chunk in chunks:
        collector.feed(chunk)
    return collector.response()


def delta(index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "finish_reason": None, "delta": fields}]}


def finish(reason: str, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "finish_reason": reason, "delta": {}}]}


def call(index: int, **fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, **fields}])


def message(*chunks: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = fold(*chunks)["choices"][0]["message"]
    return result


ROLE = delta(role="assistant", content=None)


def test_texts_are_joined_and_a_repeated_role_is_not() -> None:
    thought = [delta(reasoning_content="Hm"), delta(reasoning_content=".")]
    assert message(ROLE, ROLE, *thought, delta(content="A"), ROLE) == {
        "role": "assistant",
        "content": "A",
        "reasoning_content": "Hm.",
    }


def test_content_is_empty_and_not_null_without_any() -> None:
    assert message(ROLE, finish("stop")) == {"role": "assistant", "content": ""}


def test_refusals_and_unknown_fields_are_kept() -> None:
    assert message(delta(refusal="N"), delta(refusal="o", audio={"id": "a"})) == {
        "role": "assistant",
        "content": "",
        "refusal": "No",
        "audio": {"id": "a"},
    }
    assert fold(delta() | {"service_tier": "x"}, {"choices": [{"index": 0, "delta": {}, "extra": 1}]}) == {
        "service_tier": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": None, "extra": 1, "message": {"role": "assistant", "content": ""}}],
    }


def test_tool_calls_by_index() -> None:
    answer = message(
        call(1, id="b", type="function", function={"name": "beta"}),
        call(0, id="a", type="function", function={"name": "alpha", "arguments": "{"}),
        call(0, function={"arguments": '"x":1'}),
        call(0, id="a", function={"name": "alpha", "arguments": "}"}),
    )
    assert answer["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "alpha", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "beta", "arguments": ""}},
    ]


def test_choices_are_kept_apart_and_ordered() -> None:
    texts = [delta(1, content="b"), delta(0, content="a"), delta(1, content="B")]
    answer = fold(*texts, finish("length", 1), finish("stop"))
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in answer["choices"]] == [
        (0, "a", "stop"),
        (1, "bB", "length"),
    ]


def test_usage_and_timings_are_those_of_choice_0() -> None:
    def last(total: int) -> dict[str, Any]:
        return {"choices": [], "usage": {"total_tokens": total}, "timings": {"predicted_n": total}}

    answer = fold(finish("stop", 1), last(1), finish("stop", 0), last(7), finish("stop", 2), last(3))
    assert answer["usage"] == {"total_tokens": 7}
    assert answer["timings"] == {"predicted_n": 7}


def test_timings_per_token_end_as_the_last() -> None:
    first, last = ({"timings": {"predicted_n": n}} for n in (1, 2))
    answer = fold(delta(content="a") | first, finish("stop") | last)
    assert answer["timings"] == {"predicted_n": 2}


def test_logprobs_are_joined() -> None:
    def with_logprobs(token: str) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"content": token}, "logprobs": {"content": [{"token": token}]}}]}

    choice = fold(with_logprobs("a"), with_logprobs("b"), finish("stop"))["choices"][0]
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}]}
    assert "logprobs" not in fold(delta(content="a"))["choices"][0]
